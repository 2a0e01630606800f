"""Presets: the paper's setting in full, or shrunk to minutes (``cpu``) or seconds (``smoke``) on two cores."""

from collections.abc import Mapping
from typing import Any

from metacal.errors import InvalidValueError

PRESETS = ("full", "cpu", "smoke")

# Provisional: to be fixed on cross-entropy alone (validation ECE above 5 %) before anything else is run in them.
CPU_IMAGES: dict[str, Any] = {
    "train_size": 8000,
    "epochs": 20,
    "milestones": [10, 15],
    "augment": False,
}
CPU_MODELS = {
    "resnet18": ("resnet8", {}),
    "resnet50": ("resnet8", {"width": 24}),
    "resnet110": ("resnet20", {}),
    "wideresnet-26-10": ("resnet8", {"width": 32}),
}
SMOKE: dict[str, Any] = {
    "train_size": 64,
    "val_size": 64,
    "meta_size": 32,
    "batch_size": 32,
    "epochs": 2,
    "milestones": [1],
}
KEPT_IN_SMOKE = ("method", "seed", "nesterov", "weight_decay", "domains")


def reduced(settings: Mapping[str, Any], preset: str) -> dict[str, Any]:
    """The settings of a run under a preset.

    ``cpu`` keeps dataset, method and hyper-parameters, and shrinks images, models and epochs; text is run in full.
    ``smoke`` shows that everything runs, on the digits in place of images and text: its figures mean nothing.

    Examples:
        >>> reduced({"dataset": "cifar10", "model": "resnet18", "method": "mc"}, "cpu")["model"]
        'resnet8'
    """
    if preset not in PRESETS:
        raise InvalidValueError(f"`preset` must be one of {', '.join(PRESETS)}, got {preset!r}.")
    if preset == "full" or settings.get("dataset") == "simulated":
        return dict(settings)
    if preset == "smoke":
        kept = {key: value for key, value in settings.items() if key in KEPT_IN_SMOKE}
        return {"dataset": "digits", "model": "mlp", "model_options": {"hidden": [16]}, **kept, **SMOKE}
    if settings.get("dataset") == "20newsgroups":
        return dict(settings)
    model, options = CPU_MODELS[settings.get("model", "resnet18")]
    return {**settings, "model": model, "model_options": options, **CPU_IMAGES}
