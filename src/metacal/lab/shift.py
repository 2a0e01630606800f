"""A finished run under shift: its best checkpoint on every corruption and severity, and what a clean temperature does.

The temperature is fitted on clean validation data, as one has it before anything shifts.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from metacal.errors import InvalidValueError
from metacal.functional import fit_temperature
from metacal.functional.arguments import check_choice, check_integer
from metacal.lab.data import Dataset, Examples, load_dataset
from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, check_images
from metacal.lab.data.domains import shifted_sets
from metacal.lab.training import Checkpoints, Hardware, RunFolder, RunSpec, build_model, evaluation_batches, make_fabric
from metacal.lab.training.checkpoints import explain_mismatch
from metacal.lab.training.domain_scores import average, score_domain, worst
from metacal.lab.training.loop import predict

SHIFTS: dict[str, str | None] = {"cifar10-c": "cifar10", "cifar100-c": "cifar100", "corruptions": None}
"""Names of shifts, and the dataset each belongs to; None is for any image dataset."""


def measure_shift(
    folder: RunFolder,
    shift: str | None = None,
    *,
    data_dir: Path | None = None,
    size: int | None = None,
    progress: Callable[..., Any] | None = None,
    trust_model: bool = False,
) -> dict[str, Any]:
    """Figures of a run's best checkpoint on 19 corruptions at 5 severities, kept in its folder.

    Args:
        folder: of a complete run.
        shift: ``cifar10-c`` or ``cifar100-c`` (published arrays where they are in the data folder, else generated), or
            ``corruptions``: generated for the test images of any dataset. By default the one of the run's dataset.
        data_dir: folder of the datasets.
        size: use only the first so many test images.
        progress: is called with ``figures`` (the domain's name), ``completed`` and ``total``.
        trust_model: build a model that the run names by its import path: that runs its code.
    """
    spec, shift = check_shift(folder, shift, trust_model=trust_model)
    if size is not None:
        check_integer("size", size, 1)
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    check_images(dataset.test.inputs)
    fabric = make_fabric(spec, Hardware())
    model = fabric.setup_module(build_model(spec, dataset))
    best, _ = Checkpoints(folder.checkpoints).load_best()
    with explain_mismatch(folder.checkpoints):
        model.load_state_dict(best["model"])

    def logits_of(examples: Examples) -> tuple[torch.Tensor, torch.Tensor]:
        return predict(fabric, model, evaluation_batches(spec, dataset, examples, fabric))

    logits, targets = logits_of(clean_validation(spec, dataset, folder))
    temperature = fit_temperature(logits=logits, targets=targets).temperature
    clean = score_domain("clean", *logits_of(first(dataset.test, size)), temperature)
    domains = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    sets = shifted_sets(replace(dataset, test=first(dataset.test, size)), domains, folder=data_dir)
    each: list[dict[str, Any]] = []
    for name, examples in zip(sets.names, sets, strict=True):
        if progress is not None:
            progress(figures=name, completed=len(each), total=len(sets))
        each.append(score_domain(name, *logits_of(first(examples, size)), temperature))
    about = {"shift": shift, "source": sets.source, "run": spec.title, "spec": spec.hash, "samples": clean["samples"]}
    figures = {"temperature": temperature, "clean": clean, "average": average(each), "worst": worst(each)}
    named = zip(domains, each, strict=True)
    rows = [{"corruption": name, "severity": severity, **score} for (name, severity), score in named]
    study = {**about, **figures, "domains": rows}
    folder.write_shift(shift, study)
    return study


def check_shift(folder: RunFolder, shift: str | None = None, *, trust_model: bool = False) -> tuple[RunSpec, str]:
    """The spec of a complete run and the shift to measure it under, if the two fit; see `measure_shift`."""
    if shift is not None:
        check_choice("--on", shift, tuple(SHIFTS))
    if not folder.is_complete:
        raise InvalidValueError(f"`RUN` must be the folder of a complete run, got {folder.path}.")
    spec = folder.read_spec_to_build(trust_model=trust_model)
    if shift is None:
        return spec, next((name for name, dataset in SHIFTS.items() if dataset == spec.dataset), "corruptions")
    if SHIFTS[shift] not in (None, spec.dataset):
        raise InvalidValueError(
            f"`--on` must fit the run: {shift} is of {SHIFTS[shift]}, got a run on {spec.dataset}; --on corruptions "
            "corrupts the test images of any dataset."
        )
    return spec, shift


def clean_validation(spec: RunSpec, dataset: Dataset, folder: RunFolder) -> Examples:
    """The run's validation images as they are, whatever they were trained under."""
    if spec.domains is not None and spec.domains.is_column:
        raise InvalidValueError("`RUN` must be a run on images without a column of domains.")
    return dataset.train.select(folder.read_splits()["val"])


def first(examples: Examples, size: int | None) -> Examples:
    """The first ``size`` examples; all if None."""
    if size is None or size >= len(examples):
        return examples
    return examples.select(torch.arange(size))
