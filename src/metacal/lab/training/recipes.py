"""Recipes: the settings a dataset and a model are trained with unless told otherwise, and specs from ``key=value``."""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from metacal.errors import InvalidValueError, nearest
from metacal.lab.training.methods import METHODS
from metacal.lab.training.spec import Hardware, RunSpec

# The published settings: `RunSpec` itself has those of the image runs.
PAPER: dict[str, Any] = {"outer": "paper"}
OURS: dict[str, Any] = {"outer": "default", "meta": "val", "select": "refinement", "finish": True}
OF_LEARNING = ("outer", "meta", "through", "meta_every", "meta_lr", "meta_memory")
"""Keys that say something only where hyper-parameters are learned."""
IMAGES: dict[str, Any] = {"model": "resnet18", **PAPER}
DATASET_RECIPES: dict[str, dict[str, Any]] = {
    "cifar10": IMAGES,
    "cifar100": IMAGES,
    "svhn": IMAGES,
    "fashion-mnist": IMAGES,
    "20newsgroups": {
        "model": "global-pooling-cnn",
        **PAPER,
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
        **OURS,
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
        **OURS,
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
OWN_DATA_RECIPE: dict[str, Any] = {**OURS, "model": "mlp", "epochs": 60, "milestones": [30, 45], "reduction": "mean"}
AS_TEXT = ("dataset", "model", "method", "precision")
"""Keys whose values stay words, whatever they look like."""
WITH_OPTIONS = ("dataset_options", "model_options", "domains")
"""Keys that are set part by part: ``model_options.width=8``."""
OF_A_CELL = {"dataset", "method", "seed"}
MODEL_RECIPES: dict[str, dict[str, Any]] = {"resnet110": {"batch_size": 80}}


def build_spec(settings: Mapping[str, Any]) -> RunSpec:
    """A spec from settings, with the dataset's and the model's recipe for what is not given.

    Examples:
        >>> spec = build_spec({"dataset": "cifar10", "model": "resnet110", "method": "mc"})
        >>> spec.epochs, spec.batch_size, spec.reduction, spec.outer
        (350, 80, 'sum', 'paper')
    """
    problems: list[str] = []
    spec = _spec(settings, problems)
    if spec is None or problems:
        raise InvalidValueError("; ".join(problems) + ".")
    return spec


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
    settings, machine = _sorted_out(words, problems)
    dataset, model, method = (settings.get(key) for key in ("dataset", "model", "method"))
    if datasets and dataset is not None and dataset not in datasets and not looks_like_path(dataset):
        problems.append(_not_one_of("dataset", dataset, datasets))
    if models and model is not None and model not in models and ":" not in model:
        problems.append(_not_one_of("model", model, models))
    if not learns(method) and (method is None or method in METHODS):
        unused = [key for key in OF_LEARNING if key in settings and settings[key] != "split"]
        problems += [f"`{key}` is for methods that learn, such as meta, got method={method or 'ce'}" for key in unused]
    spec = _spec(settings, problems)
    hardware = _hardware(machine, problems)
    if problems or spec is None or hardware is None:
        raise InvalidValueError("; ".join(problems) + ".")
    return spec, hardware


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
    _, machine = _sorted_out(words, problems)
    hardware = _hardware(machine, problems)
    if problems or hardware is None:
        raise InvalidValueError("; ".join(problems) + ".")
    return hardware


def read_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Settings for many runs from words; what belongs to a run's place in a table cannot be among them.

    Examples:
        >>> read_overrides(["epochs=3"])
        {'epochs': 3}
    """
    problems: list[str] = []
    settings, machine = _sorted_out(words, problems)
    problems += [
        f"`{key}` must not be set for a table: its rows, methods and seeds say it"
        for key in OF_A_CELL & settings.keys()
    ]
    problems += [f"`{key}` must not be set here: it is a matter of the engine" for key in machine]
    problems += [_not_one_of("key", key, RunSpec.model_fields) for key in settings if key not in RunSpec.model_fields]
    if problems:
        raise InvalidValueError("; ".join(problems) + ".")
    return settings


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
    try:
        spec = RunSpec.model_validate({key: value for key, value in merged.items() if key in RunSpec.model_fields})
    except ValidationError as error:
        problems += _sentences(error)
        return None
    return spec


def learns(method: Any) -> bool:
    """Whether a method, or the name of one, learns hyper-parameters."""
    known = METHODS.get(method) if isinstance(method, str) else method
    return bool(known.get("hyperparameters") if isinstance(known, Mapping) else getattr(known, "hyperparameters", ()))


def _hardware(machine: Mapping[str, Any], problems: list[str]) -> Hardware | None:
    """The hardware, or None with what is wrong added to ``problems``."""
    try:
        return Hardware.model_validate(machine)
    except ValidationError as error:
        problems += _sentences(error)
        return None


def _sorted_out(words: Iterable[str], problems: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
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


def _sentences(error: ValidationError) -> list[str]:
    """Pydantic's complaints as one line each: the key, the rule and the value received."""
    told = [(problem, problem["msg"].removeprefix("Value error, ")) for problem in error.errors()]
    return [
        f"`{'.'.join(str(part) for part in problem['loc'])}`: {rule}, got {problem['input']!r}"
        if problem["loc"]
        else rule
        for problem, rule in told
    ]
