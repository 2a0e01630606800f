"""The paper's networks, by name; every model exposes its classifier as ``.head``."""

from metacal.models.resnet import ResNet

__all__ = ["ResNet"]
