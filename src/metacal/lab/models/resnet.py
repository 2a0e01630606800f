"""Residual networks for 32 x 32 images: a 3 x 3 stem without pooling, then four stages."""

from collections.abc import Sequence

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut.

    Args:
        inputs: channels in.
        width: channels out.
        stride: of the first convolution.
    """

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Body plus shortcut."""
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 ones, and a shortcut.

    Args:
        inputs: channels in.
        width: channels inside; four times as many come out.
        stride: of the middle convolution.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = shortcut(inputs, 4 * width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Body plus shortcut."""
        out: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


class ResNet(nn.Module):
    """A residual network.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        blocks: number of blocks in each stage; every stage but the first halves the image.
        num_classes: K.
        width: channels of the first stage; doubled from stage to stage.
        in_channels: channels of the images.
        stem_width: channels of the stem; those of the first stage unless given.

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
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        )
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


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity, or a 1 x 1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
