"""Estimates the training time of runs on this machine, from similar complete runs or from the model sizes."""

import json
import time
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from metacal.errors import MetacalError
from metacal.lab.data import SOURCES
from metacal.lab.data.files import Shape
from metacal.lab.models import create_model
from metacal.lab.training import RunSpec
from metacal.lab.training.run_folder import RunStore

LEARNING = 1.35
"""Time of a meta-calibrated step relative to a plain one (see results/benchmarks/meta_step.json)."""
VOCABULARY = 20_001


def estimate_seconds(specs: Sequence[RunSpec], store: RunStore) -> float:
    """Estimate the time of these runs, one after another.

    Examples:
        >>> from metacal.lab.training import build_spec
        >>> small, large = (build_spec({"dataset": "cifar10", "model": name}) for name in ("resnet18", "resnet50"))
        >>> 1.5 < estimate_seconds([large], RunStore("none")) / estimate_seconds([small], RunStore("none")) < 4
        True
    """
    known = _seconds_of_complete_runs(store)
    return sum(known.get(_similarity_key(spec)) or _seconds_by_size(spec) for spec in specs)


def _similarity_key(spec: RunSpec) -> tuple[object, ...]:
    work = (spec.dataset, spec.model, _options(spec), spec.train_size, spec.epochs)
    return (*work, spec.method.needs_meta, spec.outer)


def _options(spec: RunSpec) -> str:
    return json.dumps(spec.model_options, sort_keys=True)


def _seconds_of_complete_runs(store: RunStore) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = {}
    for folder in store.complete():
        try:
            groups.setdefault(_similarity_key(folder.read_spec()), []).append(folder.read_scores()["train_seconds"])
        except MetacalError:
            continue  # `metacal validate` reports it
    return {key: sum(seconds) / len(seconds) for key, seconds in groups.items()}


def _seconds_by_size(spec: RunSpec) -> float:
    source = SOURCES.get(spec.dataset)
    if source is None or source.shape is None:
        return 0.0
    shape = source.shape
    samples = min(spec.train_size or shape.samples, shape.samples)
    learning = LEARNING if spec.method.hyperparameters and spec.outer == "paper" else 1.0  # others: negligible
    return learning * spec.epochs * samples * _training_flops(spec.model, _options(spec), shape) / _speed()


@lru_cache
def _training_flops(model: str, options: str, shape: Shape) -> float:
    """Count the operations of a training step per sample: three times those of a forward pass."""
    is_text = shape.kind == "text"
    chosen = json.loads(options)
    with torch.device("meta"):
        embeddings = torch.zeros(VOCABULARY, 100) if is_text else None
        chosen |= {"num_classes": shape.num_classes, "input_shape": shape.input_shape, "embeddings": embeddings}
        network = create_model(model, **chosen)
        inputs = torch.zeros(2, *shape.input_shape, dtype=torch.long if is_text else torch.float32)
    with FlopCounterMode(display=False) as counter:
        network(inputs)
    return 3.0 * float(counter.get_total_flops()) / len(inputs)


@lru_cache(maxsize=1)
def _speed() -> float:
    """Measure the operations per second of this machine with a few training steps of a small network."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = Shape(64, (3, 32, 32), 10)
    network = create_model("resnet8", num_classes=10, input_shape=shape.input_shape).to(device)
    images = torch.zeros(shape.samples, *shape.input_shape, device=device)
    fastest = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        network(images).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        fastest = min(fastest, time.perf_counter() - started)
    return len(images) * _training_flops("resnet8", "{}", shape) / fastest
