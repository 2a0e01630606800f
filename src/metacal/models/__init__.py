"""The paper's networks, by name; every model exposes its classifier as ``.head``."""

from metacal.models.global_pooling_cnn import GlobalPoolingCNN
from metacal.models.mlp import MLP, LogisticRegression
from metacal.models.registry import MODELS, create_model
from metacal.models.resnet import ResNet
from metacal.models.wide_resnet import WideResNet

__all__ = ["MLP", "MODELS", "GlobalPoolingCNN", "LogisticRegression", "ResNet", "WideResNet", "create_model"]
