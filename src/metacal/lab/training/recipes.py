"""Recipes: the default settings of a dataset and a model, and specs from ``key=value`` words."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from metacal.errors import InvalidValueError, nearest
from metacal.lab.training.methods import METHODS
from metacal.lab.training.spec import Hardware, RunSpec

# The published settings: `RunSpec` itself has those of the image runs.
PAPER: dict[str, Any] = {"outer": "paper"}
OURS: dict[str, Any] = {"outer": "default", "meta": "val", "select": "refinement", "finish": True}
OF_LEARNING = ("outer", "meta", "through", "meta_every", "meta_lr", "meta_memory", "published")
"""Keys that say something only where hyper-parameters are learned."""
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
"""Keys whose values stay words, whatever they look like."""
WITH_OPTIONS = ("dataset_options", "model_options", "domains")
"""Keys that are set part by part: ``model_options.width=8``."""
OF_A_CELL = {"dataset", "method", "seed"}
Value = TypeVar("Value")
Model = TypeVar("Model", bound=BaseModel)


def build_spec(settings: Mapping[str, Any]) -> RunSpec:
    """A spec from settings, with the dataset's and the model's recipe for what is not given.

    Examples:
        >>> spec = build_spec({"dataset": "cifar10", "model": "resnet110", "method": "mc"})
        >>> spec.epochs, spec.batch_size, spec.reduction, spec.outer
        (350, 80, 'sum', 'paper')
    """
    problems: list[str] = []
    return _unless(problems, _spec(settings, problems))


def read_assignments(
    words: Iterable[str], *, datasets: Collection[str] = (), models: Collection[str] = ()
) -> tuple[RunSpec, Hardware]:
    """A spec and its hardware from words: ``lr=0.1``, ``milestones=10,20``, ``model_options.width=8``, ``devices=2``.

    Args:
        words: each ``key=value``.
        datasets: known names; a dataset that is none of them must look like a path. Empty checks nothing.
        models: known names; a model that is none of them must look like an import path. Empty checks nothing.

    Raises:
        InvalidValueError: naming everything that is wrong at once.

    Examples:
        >>> spec, hardware = read_assignments(["dataset=digits", "milestones=10,20", "devices=2"])
        >>> spec.milestones, hardware.devices
        ((10, 20), 2)
    """
    problems: list[str] = []
    settings, machine = _sort_words(words, problems)
    dataset, model, method = (settings.get(key) for key in ("dataset", "model", "method"))
    if datasets and dataset is not None and dataset not in datasets and not looks_like_path(dataset):
        problems.append(_not_one_of("dataset", dataset, datasets))
    if models and model is not None and model not in models and ":" not in model:
        problems.append(_not_one_of("model", model, models))
    if not learns(method) and (method is None or method in METHODS):
        unused = [key for key in OF_LEARNING if key in settings and settings[key] != "split"]
        problems += [f"`{key}` is for methods that learn, such as meta, got method={method or 'ce'}" for key in unused]
    spec, hardware = _spec(settings, problems), _validate(Hardware, machine, problems)
    return _unless(problems, spec), _unless(problems, hardware)


def looks_like_path(dataset: str) -> bool:
    """Whether a dataset is meant as a path: it is written as one, or there is such a folder here."""
    return bool(set(dataset) & {"/", ".", os.sep}) or os.path.isdir(dataset)


def are_of_hardware(words: Iterable[str]) -> bool:
    """Whether all of these words are about the machine, and none about the run."""
    return all(word.partition("=")[0] in Hardware.model_fields for word in words)


def read_hardware(words: Iterable[str]) -> Hardware:
    """The hardware that words describe.

    Examples:
        >>> read_hardware(["devices=2"]).devices
        2
    """
    problems: list[str] = []
    _, machine = _sort_words(words, problems)
    return _unless(problems, _validate(Hardware, machine, problems))


def read_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Settings for many runs from words; what belongs to a run's place in a table cannot be among them.

    Examples:
        >>> read_overrides(["epochs=3"])
        {'epochs': 3}
    """
    problems: list[str] = []
    settings, machine = _sort_words(words, problems)
    problems += [
        f"`{key}` must not be set for a table: its rows, methods and seeds say it"
        for key in OF_A_CELL & settings.keys()
    ]
    problems += [f"`{key}` must not be set here: it is a matter of the engine" for key in machine]
    problems += [_not_one_of("key", key, RunSpec.model_fields) for key in settings if key not in RunSpec.model_fields]
    return _unless(problems, settings)


def _unless(problems: list[str], value: Value | None) -> Value:
    """The value, unless there are problems: then all of them are raised at once."""
    if problems or value is None:
        raise InvalidValueError("; ".join(problems) + ".")
    return value


def _spec(settings: Mapping[str, Any], problems: list[str]) -> RunSpec | None:
    """The spec, or None with what is wrong added to ``problems``."""
    given = dict(settings)
    if "dataset" not in given:
        problems.append("`dataset` must be given, as in dataset=digits; `metacal data ls` lists the names")
    recipe = DATASET_RECIPES.get(str(given.get("dataset")), OWN_DATA_RECIPE)
    model = given.get("model", recipe.get("model"))
    if given.get("method") in ("meta", METHODS["meta"]):
        recipe = {**recipe, **OURS}  # not the paper's, whatever the data
    merged = {"dataset": "", **recipe, **MODEL_RECIPES.get(str(model), {}), **given}
    if "model" in given and given["model"] != recipe.get("model") and "model_options" not in given:
        merged.pop("model_options", None)  # those of the recipe's model
    known = [*RunSpec.model_fields, *Hardware.model_fields]
    problems += [_not_one_of("key", key, known) for key in merged if key not in RunSpec.model_fields]
    method = merged.get("method")
    if isinstance(method, str) and method not in METHODS:
        problems.append(_not_one_of("method", method, METHODS))
        merged.pop("method")
    if not learns(merged.get("method")):
        merged = {key: value for key, value in merged.items() if key not in OF_LEARNING or key in given}
    fields = {key: value for key, value in merged.items() if key in RunSpec.model_fields}
    return _validate(RunSpec, fields, problems)


def learns(method: Any) -> bool:
    """Whether a method, or the name of one, learns hyper-parameters."""
    known = METHODS.get(method) if isinstance(method, str) else method
    return bool(known.get("hyperparameters") if isinstance(known, Mapping) else getattr(known, "hyperparameters", ()))


def _validate(kind: type[Model], fields: Mapping[str, Any], problems: list[str]) -> Model | None:
    """The model, or None with what is wrong added to ``problems``: the key, the rule and the value received."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors():
            rule, place = problem["msg"].removeprefix("Value error, "), ".".join(map(str, problem["loc"]))
            problems.append(f"`{place}`: {rule}, got {problem['input']!r}" if place else rule)
        return None


def _sort_words(words: Iterable[str], problems: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the run and of the machine."""
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
            problems.append(f"`{key}` must be given once, got it twice")
        elif option and name in WITH_OPTIONS:
            into.setdefault(name, {})[option] = _value(text)
        else:
            into[key] = text if key in AS_TEXT else _value(text)
            if key == "milestones" and not isinstance(into[key], list):
                into[key] = [into[key]]
    return settings, machine


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


def _not_one_of(kind: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {kind} {name!r}, nearest: {nearest(name, known)}"
