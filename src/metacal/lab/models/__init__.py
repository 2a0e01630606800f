"""The paper's networks by name, and your own by import path; every model exposes its classifier as ``.head``."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError, nearest
from metacal.lab.models.global_pooling_cnn import GlobalPoolingCNN
from metacal.lab.models.resnet import BasicBlock, Bottleneck, ResNet, WideResNet


class MLP(nn.Module):
    """Linear layers of ``hidden`` widths with ReLU between them; inputs are flattened.

    Examples:
        >>> import torch
        >>> model = MLP(64, 10, hidden=(32,))
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape), model.head.in_features
        ((5, 10), 32)
    """

    def __init__(
        self, in_features: int, num_classes: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            layers += [nn.Linear(in_features, width), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
            in_features = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(in_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, K)``."""
        logits: Tensor = self.head(self.body(x))
        return logits


__all__ = ["MLP", "MODELS", "GlobalPoolingCNN", "ResNet", "WideResNet", "create_model"]

IMAGE, VECTOR, TEXT = "image", "vector", "text"
MODELS: dict[str, tuple[str, Callable[..., nn.Module]]] = {
    "resnet8": (IMAGE, partial(ResNet, BasicBlock, (1, 1, 1), width=16)),
    "resnet18": (IMAGE, partial(ResNet, BasicBlock, (2, 2, 2, 2))),
    "resnet20": (IMAGE, partial(ResNet, BasicBlock, (3, 3, 3), width=16)),
    "resnet50": (IMAGE, partial(ResNet, Bottleneck, (3, 4, 6, 3))),
    "resnet110": (IMAGE, partial(ResNet, Bottleneck, (3, 4, 26, 3))),
    "wideresnet-26-10": (IMAGE, partial(WideResNet, 4, 10)),
    "logistic": (VECTOR, partial(MLP, hidden=())),
    "mlp": (VECTOR, MLP),
    "global-pooling-cnn": (TEXT, GlobalPoolingCNN),
}
"""Kind of input and factory of each network."""


def create_model(
    name: str,
    *,
    num_classes: int,
    input_shape: Sequence[int] = (3, 32, 32),
    embeddings: Tensor | None = None,
    **options: Any,
) -> nn.Module:
    """Create a model with fresh weights that exposes its classifier as ``.head``.

    Args:
        name: one of `MODELS`, or the import path of your own ``nn.Module``, ``package.module:Class``, which is called
            with ``num_classes`` and ``options`` and must have a linear layer ``head``.
        num_classes: K.
        input_shape: of one sample: ``(C, H, W)`` for images, ``(d,)`` for vectors.
        embeddings: ``(words, d)`` word vectors, for models of text.
        options: arguments of the class: ``width``, ``hidden``, ``dropout``, ...

    Examples:
        >>> create_model("resnet18", num_classes=10).head
        Linear(in_features=512, out_features=10, bias=True)
    """
    if name not in MODELS and ":" not in name:
        rule, near = "a known name or an import path 'module:Class'", nearest(name, MODELS)
        raise InvalidValueError(f"`model` must be {rule}, got {name!r}; nearest: {near}.")
    takes, factory = MODELS[name] if name in MODELS else ("anything", _import(name))
    arguments: dict[str, Any] = {"num_classes": num_classes}
    if takes == IMAGE:
        if len(input_shape) != 3:
            shape = tuple(input_shape)
            raise InvalidValueError(f"`model` must fit inputs of shape {shape}, got {name}: it takes images.")
        arguments["in_channels"] = input_shape[0]
    elif takes == VECTOR:
        arguments["in_features"] = math.prod(input_shape)
    elif takes == TEXT:
        if embeddings is None:
            raise InvalidValueError(f"`model` must fit the data, got {name}: it takes text with word vectors.")
        arguments["embeddings"] = embeddings
    if taken := options.keys() & arguments.keys():
        raise InvalidValueError(f"`model_options` must not set what the data decides, got {', '.join(sorted(taken))}.")
    try:
        model = factory(**arguments, **options)
    except TypeError as error:
        raise InvalidTypeError(f"`model_options` must be arguments of {name}, got {options}: {error}.") from None
    if not isinstance(getattr(model, "head", None), nn.Module):
        raise InvalidTypeError(f"`model` must be an nn.Module with a submodule `head`, got {type(model).__name__}.")
    return model


def _import(path: str) -> Callable[..., nn.Module]:
    module_name, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # like `python -m`: finds a model in the working directory
    try:
        factory: Callable[..., nn.Module] = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # the user's module may raise anything on import
        reason = f"{type(error).__name__}: {error}"
        raise InvalidValueError(f"`model` must be importable as 'module:Class', got {path!r}: {reason}.") from None
    if not callable(factory):
        raise InvalidTypeError(f"`model` must name a class or function, got {path!r}: a {type(factory).__name__}.")
    return factory
