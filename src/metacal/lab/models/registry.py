"""Models by name, and a user's own by import path."""

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
from metacal.lab.models.mlp import MLP, LogisticRegression
from metacal.lab.models.resnet import BasicBlock, Bottleneck, ResNet
from metacal.lab.models.wide_resnet import WideResNet

IMAGE_MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet8": partial(ResNet, BasicBlock, (1, 1, 1), width=16),
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet20": partial(ResNet, BasicBlock, (3, 3, 3), width=16),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    "resnet110": partial(ResNet, Bottleneck, (3, 4, 26, 3)),
    "wideresnet-26-10": partial(WideResNet, 4, 10),
}
VECTOR_MODELS: dict[str, Callable[..., nn.Module]] = {"logistic": LogisticRegression, "mlp": MLP}
TEXT_MODELS: dict[str, Callable[..., nn.Module]] = {"global-pooling-cnn": GlobalPoolingCNN}
MODELS = (*IMAGE_MODELS, *VECTOR_MODELS, *TEXT_MODELS)


def create_model(
    name: str,
    *,
    num_classes: int,
    input_shape: Sequence[int] = (3, 32, 32),
    embeddings: Tensor | None = None,
    **options: Any,
) -> nn.Module:
    """A model with fresh weights that exposes its classifier as ``.head``.

    Args:
        name: one of `MODELS`, or the import path of your own ``nn.Module``, ``package.module:Class``, which is called
            with ``num_classes`` and ``options`` and must have a linear layer as its ``head``.
        num_classes: K.
        input_shape: of one sample: ``(C, H, W)`` for images, ``(d,)`` for vectors.
        embeddings: ``(words, d)`` word vectors, for models of text.
        options: arguments of the class: ``width``, ``hidden``, ``dropout``, ...

    Examples:
        >>> create_model("resnet18", num_classes=10).head
        Linear(in_features=512, out_features=10, bias=True)
    """
    if ":" in name:
        arguments: dict[str, Any] = {"num_classes": num_classes}
        factory = _imported(name)
    elif name in IMAGE_MODELS:
        factory = IMAGE_MODELS[name]
        if len(input_shape) != 3:
            raise InvalidValueError(
                f"`model` must fit inputs of shape {tuple(input_shape)}, got {name}: it takes images."
            )
        arguments = {"num_classes": num_classes, "in_channels": input_shape[0]}
    elif name in VECTOR_MODELS:
        factory = VECTOR_MODELS[name]
        arguments = {"num_classes": num_classes, "in_features": math.prod(input_shape)}
    elif name in TEXT_MODELS:
        factory = TEXT_MODELS[name]
        if embeddings is None:
            raise InvalidValueError(f"`model` must fit the data, got {name}: it takes text with word vectors.")
        arguments = {"num_classes": num_classes, "embeddings": embeddings}
    else:
        raise InvalidValueError(unknown_model(name))
    if taken := options.keys() & arguments.keys():
        raise InvalidValueError(f"`model_options` must not set what the data decides, got {', '.join(sorted(taken))}.")
    try:
        model = factory(**arguments, **options)
    except TypeError as error:
        raise InvalidTypeError(f"`model_options` must be arguments of {name}, got {options}: {error}.") from None
    if not isinstance(getattr(model, "head", None), nn.Module):
        raise InvalidTypeError(f"`model` must be an nn.Module with a part named `head`, got {type(model).__name__}.")
    return model


def unknown_model(name: str) -> str:
    """What to say of a name that is not there."""
    near = nearest(name, MODELS)
    return f"`model` must be a known name or an import path 'module:Class', got {name!r}; nearest: {near}."


def _imported(path: str) -> Callable[..., nn.Module]:
    module_name, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` would: a model beside the user's data is found
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # whatever the user's own file raises while it is imported
        reason = f"{type(error).__name__}: {error}"
        raise InvalidValueError(f"`model` must be importable as 'module:Class', got {path!r}: {reason}.") from None
    if not callable(factory):
        raise InvalidTypeError(f"`model` must name a class or function, got {path!r}: a {type(factory).__name__}.")
    found: Callable[..., nn.Module] = factory
    return found
