"""Recipes: the settings a dataset and a model are trained with unless told otherwise, and specs from ``key=value``."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from metacal.errors import InvalidValueError
from metacal.runs.method import METHODS
from metacal.runs.spec import Hardware, RunSpec

# The published settings: `RunSpec` itself has those of the image runs.
DATASET_RECIPES: dict[str, dict[str, Any]] = {
    "cifar10": {"model": "resnet18"},
    "cifar100": {"model": "resnet18"},
    "svhn": {"model": "resnet18"},
    "fashion-mnist": {"model": "resnet18"},
    "20newsgroups": {
        "model": "global-pooling-cnn",
        "epochs": 50,
        "optimizer": "adam",
        "lr": 1e-3,
        "weight_decay": 0.0,
        "schedule": "constant",
        "reduction": "mean",
        "clip_norm": None,
        "val_size": 900,
    },
    "digits": {
        "model": "mlp",
        "model_options": {"hidden": [256, 256]},
        "epochs": 60,
        "batch_size": 64,
        "lr": 0.05,
        "weight_decay": 0.0,
        "milestones": [30, 45],
        "reduction": "mean",
        "clip_norm": None,
    },
    "simulated": {
        "model": "logistic",
        "epochs": 200,
        "batch_size": 64,
        "lr": 0.1,
        "weight_decay": 0.0,
        "schedule": "constant",
        "reduction": "mean",
        "clip_norm": None,
    },
}
OWN_DATA_RECIPE: dict[str, Any] = {"model": "mlp", "epochs": 60, "milestones": [30, 45], "reduction": "mean"}
MODEL_RECIPES: dict[str, dict[str, Any]] = {"resnet110": {"batch_size": 80}}


def build_spec(settings: Mapping[str, Any]) -> RunSpec:
    """A spec from settings, with the dataset's and the model's recipe for what is not given.

    Examples:
        >>> spec = build_spec({"dataset": "cifar10", "model": "resnet110", "method": "mc"})
        >>> spec.epochs, spec.batch_size, spec.reduction
        (350, 80, 'sum')
    """
    given = dict(settings)
    if "dataset" not in given:
        raise InvalidValueError("`dataset` must be given, as in dataset=digits; `metacal data ls` lists the names.")
    recipe = DATASET_RECIPES.get(str(given["dataset"]), OWN_DATA_RECIPE)
    model = given.get("model", recipe.get("model"))
    merged = {**recipe, **MODEL_RECIPES.get(str(model), {}), **given}
    if "model" in given and given["model"] != recipe.get("model") and "model_options" not in given:
        merged.pop("model_options", None)  # those of the recipe's model
    method = merged.get("method")
    problems = _unknown_keys(merged, RunSpec)
    if isinstance(method, str) and method not in METHODS:
        problems.append(_not_one_of("method", method, METHODS))
        merged.pop("method")
    try:
        spec = RunSpec.model_validate({key: value for key, value in merged.items() if key in RunSpec.model_fields})
    except ValidationError as error:
        raise InvalidValueError("; ".join([*problems, *_sentences(error)])) from None
    if problems:
        raise InvalidValueError("; ".join(problems))
    return spec


def parse_assignments(assignments: Iterable[str]) -> tuple[dict[str, Any], Hardware]:
    """Settings of a run and of its hardware from words: ``lr=0.1``, ``milestones=10,20``, ``model_options.width=8``.

    Examples:
        >>> settings, hardware = parse_assignments(["milestones=10,20", "model_options.hidden=64", "devices=2"])
        >>> settings, hardware.devices
        ({'milestones': [10, 20], 'model_options': {'hidden': 64}}, 2)
    """
    settings: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    problems = []
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            problems.append(f"`{word}` must have the form key=value")
            continue
        into = hardware if key in Hardware.model_fields else settings
        name, dot, option = key.partition(".")
        if key in settings or key in hardware or (dot and option in settings.get(name, {})):
            problems.append(f"`{key}` must be given once, got it twice")
        elif dot and name in ("dataset_options", "model_options"):
            into.setdefault(name, {})[option] = _value(text)
        else:
            into[key] = text if key in ("dataset", "model", "method", "precision") else _value(text)
            if key == "milestones" and not isinstance(into[key], list):
                into[key] = [into[key]]
    if problems:
        problems += _unknown_keys(settings, RunSpec)
        raise InvalidValueError("; ".join(problems) + ".")
    try:
        return settings, Hardware.model_validate(hardware)
    except ValidationError as error:
        raise InvalidValueError("; ".join(_sentences(error))) from None


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "," in text and not text.startswith("["):
        return [_value(part) for part in text.split(",") if part]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _unknown_keys(settings: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    known = [*model.model_fields, *Hardware.model_fields]
    return [_not_one_of("key", key, known) for key in settings if key not in model.model_fields]


def _not_one_of(kind: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names
    return f"unknown {kind} {name!r}, nearest: {', '.join(near)}"


def _sentences(error: ValidationError) -> list[str]:
    """Pydantic's complaints as one line each: the key, the rule and the value received."""
    return [
        f"`{'.'.join(str(part) for part in problem['loc'])}`: {problem['msg']}, got {problem['input']!r}"
        if problem["loc"]
        else problem["msg"].removeprefix("Value error, ")
        for problem in error.errors()
    ]
