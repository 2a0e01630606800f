"""Residual networks for 32 x 32 images: a 3 x 3 stem without pooling, then three or four stages."""

import math
from collections.abc import Sequence

from torch import Tensor, nn


class Block(nn.Module):
    """``relu(body(x) + shortcut(x))``; each layer of the body is given by its inputs, outputs, size and stride."""

    expansion = 1

    def __init__(self, *layers: tuple[int, int, int, int]) -> None:
        super().__init__()
        body: list[nn.Module] = []
        for inputs, outputs, size, stride in layers:
            body += [*([nn.ReLU(inplace=True)] if body else []), *_convolution(inputs, outputs, size, stride)]
        self.body = nn.Sequential(*body)
        inputs, outputs, stride = layers[0][0], layers[-1][1], math.prod(layer[3] for layer in layers)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Body plus shortcut."""
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)


class BasicBlock(Block):
    """Two 3 x 3 convolutions, the first with the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__((inputs, width, 3, stride), (width, width, 3, 1))


class Bottleneck(Block):
    """1 x 1, 3 x 3 (with the stride) and 1 x 1 convolutions; the output has four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))


class ResNet(nn.Module):
    """A residual network.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        blocks: number of blocks in each stage; every stage but the first halves the image.
        num_classes: K.
        width: channels of the first stage; doubled at every stage.
        in_channels: channels of the images.
        stem_width: channels of the stem; by default ``width``.

    Examples:
        >>> import torch
        >>> model = ResNet(BasicBlock, (2, 2, 2, 2), num_classes=10)  # ResNet18
        >>> sum(p.numel() for p in model.parameters())
        11173962
        >>> tuple(model(torch.zeros(2, 3, 32, 32)).shape), model.head.in_features
        ((2, 10), 512)
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        num_classes: int,
        width: int = 64,
        in_channels: int = 3,
        stem_width: int | None = None,
    ) -> None:
        super().__init__()
        channels = width if stem_width is None else stem_width
        self.stem = nn.Sequential(*_convolution(in_channels, channels, 3, 1), nn.ReLU(inplace=True))
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            stage_width = width * 2**stage
            for number in range(count):
                stages.append(block(channels, stage_width, 2 if stage > 0 and number == 0 else 1))
                channels = stage_width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, K)`` of images ``(n, C, H, W)``."""
        logits: Tensor = self.head(self.pool(self.stages(self.stem(x))).flatten(1))
        return logits


class WideResNet(ResNet):
    """Three stages of basic blocks, ``widen`` times as wide as usual, after a stem of 16 channels.

    With four blocks per stage this is the paper's WideResNet-26.

    Examples:
        >>> WideResNet(blocks=4, widen=10, num_classes=10).head.in_features
        640
    """

    def __init__(self, blocks: int, widen: int, num_classes: int, in_channels: int = 3) -> None:
        super().__init__(BasicBlock, (blocks,) * 3, num_classes, 16 * widen, in_channels, stem_width=16)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / fan_out))
