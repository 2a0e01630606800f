"""Recipes: default settings of datasets and models, and specs from ``key=value`` settings."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from metacal.errors import InvalidValueError, nearest
from metacal.lab.training.spec import METHODS, Hardware, RunSpec

# The published settings; those of the image runs are the defaults of `RunSpec`.
PAPER: dict[str, Any] = {"outer": "paper"}
OURS: dict[str, Any] = {"outer": "default", "meta": "val", "select": "refinement", "finish": True}
LEARNING_KEYS = ("outer", "meta", "through", "meta_every", "meta_lr", "meta_memory", "published")
"""Keys that only apply to methods that learn hyper-parameters."""
IMAGES: dict[str, Any] = {"model": "resnet18", **PAPER}
PLAIN: dict[str, Any] = {"weight_decay": 0.0, "reduction": "mean", "clip_norm": None}
NEWSGROUPS: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3, "schedule": "constant", "epochs": 50, "val_size": 900}
DIGITS: dict[str, Any] = {"epochs": 60, "batch_size": 64, "lr": 0.05, "milestones": [30, 45]}
SIMULATED: dict[str, Any] = {"epochs": 200, "batch_size": 64, "lr": 0.1, "schedule": "constant"}
DATASET_RECIPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("cifar10", "cifar100", "svhn", "fashion-mnist"), IMAGES),
    "20newsgroups": {"model": "global-pooling-cnn", **PAPER, **PLAIN, **NEWSGROUPS},
    "digits": {"model": "mlp", "model_options": {"hidden": [256, 256]}, **OURS, **PLAIN, **DIGITS},
    "simulated": {"model": "logistic", **OURS, **PLAIN, **SIMULATED},
}
OWN_DATA_RECIPE: dict[str, Any] = {**OURS, "model": "mlp", "epochs": 60, "milestones": [30, 45], "reduction": "mean"}
MODEL_RECIPES: dict[str, dict[str, Any]] = {"resnet110": {"batch_size": 80}}
AS_TEXT = ("dataset", "model", "method", "precision")
"""Keys whose values are never parsed as numbers or JSON."""
WITH_OPTIONS = ("dataset_options", "model_options", "domains")
"""Keys with options: ``model_options.width=8``."""
Value = TypeVar("Value")
Model = TypeVar("Model", bound=BaseModel)


def build_spec(settings: Mapping[str, Any]) -> RunSpec:
    """Build a spec from settings; the recipes of dataset and model fill in the rest.

    Examples:
        >>> spec = build_spec({"dataset": "cifar10", "model": "resnet110", "method": "mc"})
        >>> spec.epochs, spec.batch_size, spec.reduction, spec.outer
        (350, 80, 'sum', 'paper')
    """
    problems: list[str] = []
    return _value_or_raise(problems, _spec(settings, problems))


def read_assignments(
    words: Iterable[str], *, datasets: Collection[str] = (), models: Collection[str] = ()
) -> tuple[RunSpec, Hardware]:
    """Parse a spec and its hardware: ``lr=0.1``, ``milestones=10,20``, ``model_options.width=8``, ``devices=2``.

    Args:
        words: each ``key=value``.
        datasets: known names; any other dataset must look like a path. Empty disables the check.
        models: known names; any other model must look like an import path. Empty disables the check.

    Raises:
        InvalidValueError: lists all problems at once.

    Examples:
        >>> spec, hardware = read_assignments(["dataset=digits", "milestones=10,20", "devices=2"])
        >>> spec.milestones, hardware.devices
        ((10, 20), 2)
    """
    problems: list[str] = []
    settings, machine = _sort_words(words, problems)
    dataset, model, method = (settings.get(key) for key in ("dataset", "model", "method"))
    if datasets and dataset is not None and dataset not in datasets and not _looks_like_path(dataset):
        problems.append(_unknown("dataset", dataset, datasets))
    if models and model is not None and model not in models and ":" not in model:
        problems.append(_unknown("model", model, models))
    if not _learns(method) and (method is None or method in METHODS):
        unused = [key for key in LEARNING_KEYS if key in settings and settings[key] != "split"]
        problems += [f"`{key}` needs a method that learns, such as meta, got method={method or 'ce'}" for key in unused]
    spec, hardware = _spec(settings, problems), _validate(Hardware, machine, problems)
    return _value_or_raise(problems, spec), _value_or_raise(problems, hardware)


def are_hardware_settings(words: Iterable[str]) -> bool:
    """Whether all of these settings are hardware settings."""
    return all(word.partition("=")[0] in Hardware.model_fields for word in words)


def read_hardware(words: Iterable[str]) -> Hardware:
    """Parse hardware settings."""
    problems: list[str] = []
    return _value_or_raise(problems, _validate(Hardware, _sort_words(words, problems)[1], problems))


def read_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Parse settings for all runs of a table; keys that the table itself sets are not allowed.

    Examples:
        >>> read_overrides(["epochs=3"])
        {'epochs': 3}
    """
    problems: list[str] = []
    settings, machine = _sort_words(words, problems)
    for key in settings:
        if key in ("dataset", "method", "seed"):
            problems.append(f"`{key}` must not be set for a table: its rows, methods and seeds define it")
        elif key not in RunSpec.model_fields:
            problems.append(_unknown("key", key, RunSpec.model_fields))
    problems += [f"`{key}` must not be set here: the engine sets it" for key in machine]
    return _value_or_raise(problems, settings)


def _value_or_raise(problems: list[str], value: Value | None) -> Value:
    """Return the value; if there are problems, raise all of them at once."""
    if problems or value is None:
        raise InvalidValueError("; ".join(problems) + ".")
    return value


def _spec(settings: Mapping[str, Any], problems: list[str]) -> RunSpec | None:
    """Return the spec, or None after adding errors to ``problems``."""
    given = dict(settings)
    if "dataset" not in given:
        problems.append("`dataset` must be given, as in dataset=digits; `metacal data ls` lists the names")
    recipe = DATASET_RECIPES.get(str(given.get("dataset")), OWN_DATA_RECIPE)
    if given.get("method") in ("meta", METHODS["meta"]):
        recipe = {**recipe, **OURS}  # even for the paper's datasets
    model = given.get("model", recipe["model"])
    merged = {"dataset": "", **recipe, **MODEL_RECIPES.get(str(model), {}), **given}
    if model != recipe["model"] and "model_options" not in given:
        merged.pop("model_options", None)  # they are for the recipe's model
    known = [*RunSpec.model_fields, *Hardware.model_fields]
    problems += [_unknown("key", key, known) for key in merged if key not in RunSpec.model_fields]
    method = merged.get("method")
    if isinstance(method, str) and method not in METHODS:
        problems.append(_unknown("method", merged.pop("method"), METHODS))
    left_out = () if _learns(merged.get("method")) else LEARNING_KEYS
    fields = {key: value for key, value in merged.items() if key in given or key not in left_out}
    return _validate(RunSpec, {key: fields[key] for key in fields if key in RunSpec.model_fields}, problems)


def _learns(method: Any) -> bool:
    """Whether a method, or the name of one, learns hyper-parameters."""
    known = METHODS.get(method) if isinstance(method, str) else method
    return bool(known.get("hyperparameters") if isinstance(known, Mapping) else getattr(known, "hyperparameters", ()))


def _looks_like_path(dataset: str) -> bool:
    return bool(set(dataset) & {"/", ".", os.sep}) or os.path.isdir(dataset)


def _validate(kind: type[Model], fields: Mapping[str, Any], problems: list[str]) -> Model | None:
    """Return the model, or None after adding errors to ``problems``: the key, the rule and the value."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors():
            rule, place = problem["msg"].removeprefix("Value error, "), ".".join(map(str, problem["loc"]))
            problems.append(f"`{place}`: {rule}, got {problem['input']!r}" if place else rule)
        return None


def _sort_words(words: Iterable[str], problems: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate settings of the run and of the hardware."""
    settings: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            problems.append(f"`{word}` must have the form key=value")
            continue
        into = machine if key in Hardware.model_fields else settings
        name, _, option = key.partition(".")
        if key in into or option in (into.get(name) or {} if option else {}):
            problems.append(f"`{key}` must be given only once, got it twice")
        elif option and name in WITH_OPTIONS:
            into.setdefault(name, {})[option] = _value(text)
        else:
            into[key] = text if key in AS_TEXT else _value(text)
            if key == "milestones" and not isinstance(into[key], list):
                into[key] = [into[key]]
    return settings, machine


def _value(text: str) -> Any:
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if "," in text and not text.startswith("["):
        return [_value(part) for part in text.split(",") if part]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {kind} {name!r}, nearest: {nearest(name, known)}"
