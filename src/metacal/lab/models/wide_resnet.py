"""Wide residual networks for 32 x 32 images."""

import math

from torch import nn

from metacal.lab.models.resnet import BasicBlock, ResNet


class WideResNet(ResNet):
    """Three stages of basic blocks, k times as wide as usual, behind a stem of 16 channels.

    Args:
        blocks: of each stage; 4 make what the paper calls WideResNet-26.
        widen: k.
        num_classes: K.
        in_channels: channels of the images.

    Examples:
        >>> WideResNet(blocks=4, widen=10, num_classes=10).head.in_features
        640
    """

    def __init__(self, blocks: int, widen: int, num_classes: int, in_channels: int = 3) -> None:
        super().__init__(
            BasicBlock, (blocks,) * 3, num_classes, width=16 * widen, in_channels=in_channels, stem_width=16
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / fan_out))
