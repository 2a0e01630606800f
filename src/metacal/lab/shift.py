"""Evaluates the best checkpoint of a finished run under every corruption and severity.

The temperature is fitted on clean validation data, as in practice: shifted data is not available in advance.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional import fit_temperature
from metacal.functional.arguments import check_integer
from metacal.lab.data import Examples, load_dataset
from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, check_images
from metacal.lab.data.domains import shifted_sets
from metacal.lab.data.sources.cifar_c import PUBLISHED
from metacal.lab.training import Checkpoints, Hardware, RunFolder, RunSpec, build_model, evaluation_batches, make_fabric
from metacal.lab.training.checkpoints import explain_mismatch
from metacal.lab.training.domain_scores import score_domain, summarise
from metacal.lab.training.loop import predict


def measure_shift(
    folder: RunFolder,
    *,
    data_dir: Path | None = None,
    size: int | None = None,
    progress: Callable[..., Any] | None = None,
    trust_model: bool = False,
) -> dict[str, Any]:
    """Evaluate a run's best checkpoint on 19 corruptions at 5 severities, and store the figures in its folder.

    Args:
        folder: of a complete run.
        data_dir: folder of the datasets.
        size: use only this many test images.
        progress: called with ``figures`` (the domain's name), ``completed`` and ``total``.
        trust_model: allow a model that the run names by import path, whose code is run.
    """
    spec = check_run(folder, trust_model=trust_model)
    if size is not None:
        check_integer("size", size, 1)
    dataset = load_dataset(spec.dataset, folder=data_dir, **spec.dataset_options)
    check_images(dataset.test.inputs)
    fabric = make_fabric(spec, Hardware())
    model = fabric.setup_module(build_model(spec, dataset))
    best, _ = Checkpoints(folder.checkpoints).load_best()
    with explain_mismatch(folder.checkpoints):
        model.load_state_dict(best["model"])

    def first(examples: Examples) -> Examples:
        return Examples(examples.inputs[:size], examples.targets[:size])

    def logits_of(examples: Examples) -> tuple[Tensor, Tensor]:
        return predict(fabric, model, evaluation_batches(spec, dataset, examples, fabric))

    logits, targets = logits_of(dataset.train.select(folder.read_splits()["val"]))
    temperature = fit_temperature(logits=logits, targets=targets).temperature
    clean = score_domain("clean", *logits_of(first(dataset.test)), temperature)
    domains = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    sets = shifted_sets(replace(dataset, test=first(dataset.test)), domains, folder=data_dir)
    rows: list[dict[str, Any]] = []
    for (corruption, severity), name, examples in zip(domains, sets.names, sets, strict=True):
        if progress is not None:
            progress(figures=name, completed=len(rows), total=len(sets))
        figures = score_domain(name, *logits_of(first(examples)), temperature)
        rows.append({"corruption": corruption, "severity": severity, **figures})
    shift = PUBLISHED[dataset.name].name if dataset.name in PUBLISHED else "corruptions"
    study = {
        "shift": shift,
        "source": sets.source,
        "run": spec.title,
        "spec": spec.hash,
        "samples": clean["samples"],
        "temperature": temperature,
        "clean": clean,
        **summarise(rows),
        "domains": rows,
    }
    folder.write_shift(shift, study)
    return study


def check_run(folder: RunFolder, *, trust_model: bool = False) -> RunSpec:
    """Return the spec of a complete run, in order to rebuild its model."""
    if not folder.is_complete:
        raise InvalidValueError(f"`RUN` must be the folder of a complete run, got {folder.path}.")
    return folder.read_spec_to_build(trust_model=trust_model)
