"""The paper's networks, by name; every model exposes its classifier as ``.head``."""

from metacal.lab.models.global_pooling_cnn import GlobalPoolingCNN
from metacal.lab.models.mlp import MLP, LogisticRegression
from metacal.lab.models.registry import MODELS, create_model
from metacal.lab.models.resnet import ResNet
from metacal.lab.models.wide_resnet import WideResNet

__all__ = ["MLP", "MODELS", "GlobalPoolingCNN", "LogisticRegression", "ResNet", "WideResNet", "create_model"]
