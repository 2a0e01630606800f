"""`run` executes a spec into a run folder: data -> model -> loss -> training loop -> finish -> scores."""

import hashlib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidValueError
from metacal.evaluation import Predictions, score_predictions
from metacal.functional import fit_temperature
from metacal.lab.data import Batches
from metacal.lab.data.domains import ShiftedSets, shifted_sets
from metacal.lab.training.averaging import AveragedWeights
from metacal.lab.training.build import (
    Job,
    build_model,
    build_optimizer,
    evaluation_batches,
    load_data,
    make_batches,
    make_fabric,
)
from metacal.lab.training.checkpoints import Checkpoints, explain_mismatch
from metacal.lab.training.domain_scores import score_domains, summarise
from metacal.lab.training.environment import is_first_process
from metacal.lab.training.events import EpochDone, Event, Listener, Notice, StopRequest, TrainingBegan, silence
from metacal.lab.training.loop import Phase, Training, predict, train
from metacal.lab.training.published import PublishedLoss, published_stream
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.spec import Hardware, RunSpec
from metacal.lab.training.training_loss import MetaCalibratedLoss, PlainLoss, build_loss, sum_terms
from metacal.metalearning.finish import finish as finish_model
from metacal.metalearning.model_calls import eagerly


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
        folder: locked during the run.
        hardware: devices and threads.
        data_dir: folder of the datasets; see `metacal.lab.data.load_dataset`.
        resume: continue an unfinished run.
        emit: receives events.
        stop: a request to stop.
    """
    if resume and folder.is_complete:
        folder.check_free_for(spec, resume=True)
        return folder.read_scores()
    hardware = hardware or Hardware()
    is_first = is_first_process(hardware.devices)
    with folder.lock() if is_first else nullcontext():
        if is_first:
            folder.check_free_for(spec, resume=resume)
        dataset, splits = load_data(spec, data_dir)
        job = Job(spec, folder, dataset, splits, make_fabric(spec, hardware))
        torch.manual_seed(spec.seed)
        model = build_model(spec, dataset)
        # By default for images: faster on CUDA, and never slower on a CPU (results/benchmarks/channels_last.json).
        if dataset.kind == "image" if hardware.channels_last is None else hardware.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        training = prepare(job, model, emit=emit, stop=stop)
        if job.fabric.is_global_zero:
            begin(job)
        progress = train(training, resume=resume)
        sets = shifted_sets(dataset, spec.domains.test, folder=data_dir) if spec.domains is not None else None
        return finish(job, training, progress.seconds, sets)


def prepare(job: Job, module: nn.Module, *, emit: Listener = silence, stop: StopRequest | None = None) -> Training:
    """Build everything that the loop needs."""
    spec, fabric = job.spec, job.fabric
    optimizer = build_optimizer(spec, module.parameters())
    if spec.compile:
        module.compile()
    model, optimizer = fabric.setup(module, optimizer)
    average = None
    if spec.average is not None:
        average = AveragedWeights(model.module, spec.average, decay=spec.ema_decay, epochs=spec.epochs)
    val = evaluation_batches(spec, job.dataset, job.splits.val, fabric)
    check_output(job, model, val)
    torch.manual_seed(spec.seed + 1000 * fabric.global_rank)  # dropout differs between processes
    batches = make_batches(job, "train")
    meta = make_batches(job, spec.meta_part, unlike=batches) if spec.method.hyperparameters else None
    stream = published_stream(spec, meta, len(batches)) if meta is not None and spec.published else meta
    loss = build_loss(spec, model, optimizer, stream, job.dataset.num_classes)
    if spec.published and isinstance(loss, MetaCalibratedLoss):
        loss = PublishedLoss(loss.calibrator, spec, optimizer)
    phases = [Phase(batches, loss, spec.lr)]
    if spec.method.interleaved:
        calibration = PlainLoss(model, sum_terms(spec.method.interleaved), "mean")
        phases.append(Phase(make_batches(job, "meta"), calibration, spec.interleaved_lr or spec.lr))
    if spec.schedule == "multistep" and spec.milestones and spec.milestones[0] >= spec.epochs:
        emit(Notice(f"The learning rate never drops: milestones {list(spec.milestones)} with {spec.epochs} epochs."))
    return Training(
        spec,
        fabric,
        model,
        optimizer,
        phases,
        val,
        Checkpoints(job.folder.checkpoints),
        average,
        emit=record_epochs(job.folder, emit) if fabric.is_global_zero else silence,
        stop=StopRequest() if stop is None else stop,
    )


@torch.no_grad()
def check_output(job: Job, model: Any, val: Batches) -> None:
    """Raise unless the model returns logits for the classes of this data; called before anything is written."""
    x, _ = next(iter(val))
    if job.spec.method.mixup and not x.is_floating_point():
        raise InvalidValueError("`method` must not use mixup for text: it mixes numbers, got tokens.")
    devices = [job.fabric.device] if job.fabric.device.type == "cuda" else []
    # Not compiled: hooks that are added to its layers later would be ignored.
    with torch.random.fork_rng(devices=devices), job.fabric.autocast(), eagerly():
        model.eval()
        try:
            logits = model.module(x.to(next(model.parameters()).dtype) if x.is_floating_point() else x)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidValueError(f"`model` must take inputs of shape {tuple(x.shape)}, got: {reason}.") from None
        model.train()
    wanted = (len(x), job.dataset.num_classes)
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != wanted:
        raise InvalidValueError(f"`model` must return logits of shape {wanted}, got {found}.")


def record_epochs(folder: RunFolder, emit: Listener) -> Listener:
    """Return a listener that writes every epoch into the run folder, then passes the event on."""

    def record(event: Event) -> None:
        if isinstance(event, TrainingBegan):
            folder.drop_epochs(event.epoch)
        elif isinstance(event, EpochDone):
            folder.add_epoch(event.record, event.tensors)
        emit(event)

    return record


def begin(job: Job) -> None:
    """Write spec and splits of a new run to its folder, or check that those of a resumed one match."""
    folder, dataset, indices = job.folder, job.dataset, job.splits.indices
    digest = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        for values in (part.inputs, part.targets):
            digest.update(values.contiguous().numpy().data)
    if not folder.exists:
        folder.write_splits(indices)
        folder.write_superclasses(dataset.superclasses)
        circumstances = {"device": str(job.fabric.device), "processes": job.fabric.world_size, "data": dataset.files}
        folder.write_spec(job.spec, {**circumstances, "data_hash": digest.hexdigest()})
        return
    splits = folder.read_splits()
    are_same = splits.keys() == indices.keys() and all(torch.equal(splits[name], indices[name]) for name in splits)
    if folder.read_environment().get("data_hash") != digest.hexdigest() or not are_same:
        raise InvalidValueError(
            f"`dataset` must be the data that the run in {folder.path} started with, got other data."
        )


def finish(job: Job, training: Training, seconds: float, sets: ShiftedSets | None) -> dict[str, Any]:
    """Predict and score with the best checkpoint, on the test set or every test domain."""
    spec, dataset, fabric, loss = job.spec, job.dataset, job.fabric, training.phases[0].loss
    fabric.barrier()
    best, complaints = training.checkpoints.load_best()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Its copy is used."))
    with explain_mismatch(training.checkpoints.folder):
        training.model.load_state_dict(best["model"])
        loss.load_learned(best["learned"])
        best_epoch = int(best["epoch"])
    if spec.finish and "finish" not in best:
        best = fold_temperature(best, training)
    predictions, sizes = {}, []
    for part, every in (("val", [job.splits.val]), ("test", sets or [job.splits.test])):
        batches = (evaluation_batches(spec, dataset, examples, fabric) for examples in every)
        found = [predict(fabric, training.model, each) for each in batches]
        logits, targets = (torch.cat(values) for values in zip(*found, strict=True))
        predictions[part] = Predictions.from_logits(logits, targets, dataset.class_names, spec.title)
        sizes = [len(values) for _, values in found]
    val, test = predictions["val"], predictions["test"]
    scores = {
        "spec": spec.hash,
        "best_epoch": best_epoch,
        "train_seconds": seconds,
        **({"finish": best["finish"]} if spec.finish else {}),
        "test": score_predictions(logits=test.logits, targets=test.targets).as_dict(),
        "val": score_predictions(logits=val.logits, targets=val.targets).as_dict(),
    }
    domains = None
    if sets is not None:
        domains = torch.arange(len(sets)).repeat_interleave(torch.tensor(sizes)).to(test.targets.device)
        # Like the checkpoint, the temperature is chosen on the validation domains.
        temperature = fit_temperature(logits=val.logits, targets=val.targets).temperature
        each = score_domains(test.logits, test.targets, domains, sets.names, temperature)
        scores["domains"] = {"source": sets.source, "temperature": temperature, **summarise(each), "each": each}
    if fabric.is_global_zero:
        job.folder.write_predictions("val", val)
        job.folder.write_predictions("test", test, domains, sets.names if sets is not None else ())
        job.folder.write_hyperparameters(loss.hyperparameters.export())
        job.folder.write_scores(scores)
    return scores


def fold_temperature(best: dict[str, Any], training: Training) -> dict[str, Any]:
    """Fold a temperature into the head of the best state, if possible, and replace the checkpoint."""
    fabric, model = training.fabric, training.model
    head = model.module.head
    assert isinstance(head, nn.Module)
    done = finish_model(model.module, head, *predict(fabric, model, training.val), folds=True)
    best = {**best, "model": model.state_dict(), "finish": {**asdict(done), "verdict": done.verdict}}
    if fabric.is_global_zero:
        training.checkpoints.save_best(best)
    fabric.barrier()
    return best
