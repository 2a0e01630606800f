"""Scales: the paper's setting in full, or shrunk to minutes (``cpu``) or seconds (``smoke``) on two cores."""

from collections.abc import Mapping
from typing import Any

from metacal.errors import InvalidValueError
from metacal.lab.training.methods import METHODS

SCALES = ("full", "cpu", "smoke")

# Fixed on cross-entropy alone (validation ECE above 5 %), before anything else was run: docs/paper.md.
CPU_IMAGES: dict[str, dict[str, Any]] = {
    "cifar10": {"train_size": 9000, "meta_size": 1000, "epochs": 30, "milestones": [15, 23]},
    "cifar100": {"train_size": 9000, "meta_size": 1000, "epochs": 30, "milestones": [15, 23]},
    "svhn": {"train_size": 2500, "meta_size": 300, "epochs": 90, "milestones": [45, 68]},
}
CPU_SHARED: dict[str, Any] = {"val_size": 1000, "augment": False}
CPU_MODELS = {
    "resnet18": ("resnet8", {}),
    "resnet50": ("resnet8", {"width": 24}),
    "resnet110": ("resnet20", {}),
    "wideresnet-26-10": ("resnet8", {"width": 32}),
}
PUBLISHED: dict[str, Any] = {"meta": "split", "select": "accuracy", "finish": False}
"""As the paper goes about it, on data whose recipe is ours."""
SMOKE: dict[str, Any] = {
    "train_size": 64,
    "val_size": 64,
    "meta_size": 32,
    "batch_size": 32,
    "epochs": 2,
    "milestones": [1],
}
KEPT_IN_SMOKE = (
    *("method", "seed", "nesterov", "weight_decay", "domains", "hold_out_meta"),
    *("outer", "meta", "through", "select", "finish"),
)


def check_scale(scale: str) -> None:
    """Raise unless there is such a scale."""
    if scale not in SCALES:
        raise InvalidValueError(f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}.")


def scale_settings(settings: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """The settings of a run at a scale.

    ``cpu`` keeps dataset, method and hyper-parameters, and shrinks images, models and epochs; text is run in full.
    ``smoke`` shows that everything runs, on the digits in place of images and text: its figures mean nothing.

    Examples:
        >>> scale_settings({"dataset": "cifar10", "model": "resnet18", "method": "mc"}, "cpu")["model"]
        'resnet8'
    """
    check_scale(scale)
    if scale == "full" or settings.get("dataset") == "simulated":
        return dict(settings)
    if scale == "smoke":
        kept = {key: value for key, value in settings.items() if key in KEPT_IN_SMOKE}
        small = {"dataset": "digits", "model": "mlp", "model_options": {"hidden": [16]}, **kept, **SMOKE}
        if learned_on(settings) == "val":
            small.pop("meta_size")
        return small if settings.get("method") == "meta" else {**PUBLISHED, **small}
    if settings.get("dataset") == "20newsgroups":
        return dict(settings)
    model, options = CPU_MODELS[settings.get("model", "resnet18")]
    regime = dict(CPU_IMAGES[settings["dataset"]])
    meta_size = regime.pop("meta_size")
    needs_part = METHODS[settings.get("method", "ce")].needs_meta and learned_on(settings) == "split"
    if needs_part or settings.get("hold_out_meta", False):  # as in the paper: 80 % of the data against 90 %
        regime |= {"train_size": regime["train_size"] - meta_size, "meta_size": meta_size}
    return {**settings, "model": model, "model_options": options, **CPU_SHARED, **regime}


def learned_on(settings: Mapping[str, Any]) -> str:
    """The part of the data that hyper-parameters are learned on: the paper's methods have one of their own."""
    part: str = settings.get("meta", "val" if settings.get("method") == "meta" else "split")
    return part
