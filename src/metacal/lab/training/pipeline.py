"""`run`: a spec into a run folder, straight down: data -> model -> train -> evaluate."""

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from metacal.lab.data import Dataset, Splits
from metacal.lab.data.domains import shifted_sets
from metacal.lab.training.environment import is_first_process
from metacal.lab.training.events import Listener, silence
from metacal.lab.training.loop import train
from metacal.lab.training.machine import make_fabric, wants_channels_last
from metacal.lab.training.preparing import prepare
from metacal.lab.training.run_data import build_model, load_data
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.scoring import finish
from metacal.lab.training.spec import Hardware, RunSpec
from metacal.lab.training.stop import StopRequest


def run(
    spec: RunSpec,
    folder: RunFolder,
    *,
    hardware: Hardware | None = None,
    data_dir: Path | None = None,
    resume: bool = False,
    emit: Listener = silence,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Execute a spec into a run folder and return its scores; a complete run is read, not run again.

    Args:
        spec: what to run.
        folder: where it is kept; locked meanwhile.
        hardware: where it is executed.
        data_dir: folder of the datasets; see `metacal.lab.data.load_dataset`.
        resume: go on with a run that was begun before.
        emit: is told what happens.
        stop: asks the loop to stop.
    """
    if is_first_process():
        folder.check_free_for(spec, resume=resume)
    if resume and folder.is_complete:
        return folder.read_scores()
    dataset, splits = load_data(spec, data_dir)
    hardware = hardware or Hardware()
    fabric = make_fabric(spec, hardware)
    torch.manual_seed(spec.seed)
    model = build_model(spec, dataset)
    if wants_channels_last(hardware, dataset, fabric):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    training = prepare(spec, dataset, splits, model, fabric, folder, emit, StopRequest() if stop is None else stop)
    with folder.lock() if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            folder.check_free_for(spec, resume=resume)
            begin(spec, dataset, splits, fabric, folder)
        progress = train(training, resume=resume)
        sets = shifted_sets(dataset, spec.domains.test, folder=data_dir) if spec.domains is not None else None
        return finish(spec, dataset, splits, training, folder, progress.seconds, sets)


def begin(spec: RunSpec, dataset: Dataset, splits: Splits, fabric: Fabric, folder: RunFolder) -> None:
    """Write what the run is into its folder, or hold it to what is written there: the data must be the same."""
    data_hash = fingerprint(dataset)
    if folder.exists:
        folder.check_data(data_hash, splits.indices)
        return
    folder.write_splits(splits.indices)
    folder.write_superclasses(dataset.superclasses)
    circumstances = {"device": str(fabric.device), "processes": fabric.world_size, "data": dataset.files}
    folder.write_spec(spec, {**circumstances, "data_hash": data_hash})


def fingerprint(dataset: Dataset) -> str:
    """A hash of all inputs and targets."""
    digest = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        for values in (part.inputs, part.targets):
            digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()
