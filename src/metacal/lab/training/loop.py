"""The training loop of every method, on one or several devices, new or resumed."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor, nn
from torch.optim import Optimizer

from metacal.errors import TrainingError
from metacal.functional import cross_entropy, dece, expected_calibration_error
from metacal.functional.binning import calibration_error, equal_width_statistics
from metacal.functional.inputs import at_least_float32, class_logits
from metacal.functional.temperature import temperature_with_prior
from metacal.lab.data.batches import Batches
from metacal.lab.training import events
from metacal.lab.training.averaging import AveragedWeights
from metacal.lab.training.checkpoints import Checkpoints, Progress, check_finite, restore, save
from metacal.lab.training.spec import RunSpec
from metacal.lab.training.training_loss import TrainingLoss

ASK_EVERY = 16
"""With several processes: the number of batches after which they agree on whether to stop."""


@dataclass(frozen=True)
class Phase:
    """One pass over some batches with one loss; an epoch has one or more phases."""

    batches: Batches
    loss: TrainingLoss
    lr: float  # before the schedule


@dataclass(frozen=True)
class Training:
    """The objects of the loop. The first phase gives the epoch's training figures."""

    spec: RunSpec  # epochs, schedule, accumulation, clipping, patience, and how the best epoch is selected
    fabric: Fabric
    model: _FabricModule
    optimizer: Optimizer
    phases: Sequence[Phase]
    val: Batches  # this process's share of the validation set, unshuffled
    checkpoints: Checkpoints
    average: AveragedWeights | None = None  # validated and scored instead of the model
    save_seconds: float = 600.0  # how often the state is saved within an epoch
    emit: events.Listener = events.silence
    stop: events.StopRequest = field(default_factory=events.StopRequest)


def train(training: Training, *, resume: bool = False) -> Progress:
    """Train to the end or until asked to stop; ``resume`` continues from the last checkpoint, if any.

    Returns:
        The final progress; the best state is in the checkpoints.

    Raises:
        Stopped: a signal was received; the state is saved.
        TrainingError: the loss is not finite; the last checkpoint is older.
        StorageError: a checkpoint could not be written or read.
    """
    spec, progress = training.spec, Progress()
    if resume:
        restore(training, progress)
    steps = [len(phase.batches) for phase in training.phases]
    done = sum(steps[: progress.phase]) + progress.batch
    training.emit(events.TrainingBegan(spec.epochs, sum(steps), progress.epoch, done))
    while progress.epoch < spec.epochs:
        if spec.patience is not None and progress.epoch - progress.best_epoch >= spec.patience:
            what = "error" if spec.select == "accuracy" else "NLL after temperature scaling"
            training.emit(events.Notice(f"Stopped early: no better validation {what} in {spec.patience} epochs."))
            break
        run_epoch(training, progress)
    return progress


def run_epoch(training: Training, progress: Progress) -> None:
    """Run the rest of the current epoch: its batches, figures and checkpoint."""
    training.model.train()
    saved = time.perf_counter()
    began = saved - progress.seconds
    factor = training.spec.lr_factor(progress.epoch)
    for number, phase in enumerate(training.phases):
        if number < progress.phase:
            continue
        for group in training.optimizer.param_groups:
            group["lr"] = phase.lr * factor
        for x, y in phase.batches.epoch(progress.epoch, start=progress.batch):
            whole = phase.batches.size(progress.batch)
            loss, logits = train_batch(training, phase, x, y, whole)
            progress.batch += 1
            if number == 0:
                progress.add(loss, logits, y)
            else:
                progress.add_later(loss)
            training.emit(events.BatchDone(progress.epoch, progress.batch, loss / len(y)))
            now = time.perf_counter()
            progress.seconds = now - began
            is_asked = should_stop(training, progress, is_last=progress.batch == len(phase.batches))
            if is_asked or (now - saved > training.save_seconds and training.fabric.world_size == 1):
                check_finite(training, progress)
                save(training, progress)
                saved = now
            if is_asked:
                raise events.Stopped(training.stop.signal)
        progress.phase, progress.batch = number + 1, 0
    close_epoch(training, progress, training.phases[0].lr * factor)
    progress.seconds = time.perf_counter() - began


def train_batch(training: Training, phase: Phase, x: Any, y: Tensor, whole: int) -> tuple[Tensor, Tensor]:
    """Take one optimiser step.

    DDP averages gradients over processes, whose shares of a batch may differ in size. Each loss is scaled so that the
    joint gradient is that of the mean, or the sum, over the whole batch of ``whole`` samples.

    Returns:
        The loss summed over this process's samples, and their logits; both detached.
    """
    fabric, spec = training.fabric, training.spec
    parts = list(zip(x.chunk(spec.accumulate), y.chunk(spec.accumulate), strict=True))
    training.optimizer.zero_grad()
    total, logits = torch.zeros((), device=y.device), []
    is_mean = phase.loss.reduction == "mean"
    for number, (inputs, targets) in enumerate(parts, start=1):
        is_last = number == len(parts)
        with fabric.no_backward_sync(training.model, enabled=not is_last):
            with fabric.autocast():
                loss, part_logits = phase.loss(inputs, targets, boundary=is_last)
            scale = len(targets) / whole if is_mean else 1.0
            fabric.backward(loss * (scale * fabric.world_size))
        total = total + loss.detach() * (len(targets) if is_mean else 1)
        logits.append(part_logits)
    if spec.clip_norm is not None:
        fabric.clip_gradients(training.model, training.optimizer, max_norm=spec.clip_norm, error_if_nonfinite=False)
    training.optimizer.step()
    if training.average is not None:
        training.average.after_step()
    return total, logits[0] if len(logits) == 1 else torch.cat(logits)


def should_stop(training: Training, progress: Progress, *, is_last: bool) -> bool:
    """Whether any process received a signal; several processes synchronise only occasionally."""
    if training.fabric.world_size == 1:
        return bool(training.stop)
    if progress.batch % ASK_EVERY and not is_last:
        return False
    asked = torch.tensor(float(bool(training.stop)), device=training.fabric.device)
    return float(training.fabric.all_reduce(asked, reduce_op="sum")) > 0  # type: ignore[arg-type]


def close_epoch(training: Training, progress: Progress, lr: float) -> None:
    """Compute the figures of the epoch, then store its record, the best state and the state to resume from."""
    fabric, loss = training.fabric, training.phases[0].loss
    check_finite(training, progress)
    losses, confidences, correct = (gather_rows(fabric, values) for values in progress.seen())
    scored = averaged_model(training, progress)
    logits, targets = predict(fabric, scored, training.val)
    if not bool(torch.isfinite(logits).all()):
        raise TrainingError(
            f"The validation logits are no longer finite in epoch {progress.epoch + 1}: lower `lr` or set `clip_norm`. "
            "The last checkpoint is older."
        )
    record = {
        "epoch": float(progress.epoch + 1),
        "lr": lr,
        "train_loss": float(losses.sum()) / len(correct),
        "train_error": 1.0 - float(correct.double().mean()),
        "train_ece": float(calibration_error(equal_width_statistics(confidences, correct))),
        "val_loss": float(cross_entropy(logits=logits, targets=targets)),
        "val_error": error_rate(logits, targets),
        "val_ece": float(expected_calibration_error(logits=logits, targets=targets, validate=False)),
        "val_dece": float(dece(logits=logits, targets=targets)),
        "val_refined_nll": refined_nll(logits, targets),
        **{name: float(value) for name, value in loss.hyperparameters.summary().items()},
    }
    for phase in training.phases:
        phase.loss.observe(logits, targets)
    judged = record["val_error" if training.spec.select == "accuracy" else "val_refined_nll"]
    is_best = judged < progress.best_error
    if is_best:
        progress.best_error, progress.best_epoch = judged, progress.epoch + 1
    progress.next_epoch()
    learned = loss.learned()
    tensors = {"val_logits": logits, **{f"omega.{name}": value for name, value in learned.items()}}
    training.emit(events.EpochDone(progress.epoch, record, tensors, is_best))
    if is_best and fabric.is_global_zero:
        best = {"epoch": progress.epoch, "model": scored.state_dict(), "learned": learned}
        training.checkpoints.save_best(best)
    save(training, progress)


def averaged_model(training: Training, progress: Progress) -> nn.Module:
    """Return the model to evaluate: the trained one, or that with averaged weights."""
    average = training.average
    if average is None:
        return training.model
    average.after_epoch(progress.epoch, training.phases[0].batches.epoch(progress.epoch), training.fabric)
    if average.begins_after(progress.epoch):
        progress.best_error = math.inf
    module = average.model.module
    assert isinstance(module, nn.Module)
    return module


def refined_nll(logits: Tensor, targets: Tensor) -> float:
    """NLL after temperature scaling fitted on these samples."""
    wide = class_logits(logits).double()
    temperature = temperature_with_prior(logits=wide, targets=targets, iterations=40)
    return float(cross_entropy(logits=wide / temperature, targets=targets))


def error_rate(logits: Tensor, targets: Tensor) -> float:
    """Share of wrong predictions."""
    return float((class_logits(logits).argmax(dim=1) != targets).double().mean())


@torch.no_grad()
def predict(fabric: Fabric, model: nn.Module, share: Batches) -> tuple[Tensor, Tensor]:
    """Return logits ``(n, K)``, float32 or wider, and targets ``(n,)`` of all examples, in order, on every process.

    Args:
        fabric: the model was set up with it.
        model: its training mode is restored.
        share: unshuffled batches of this process's share of the examples.
    """
    was_training = model.training
    model.eval()
    # Bypass DDP, whose forward synchronises buffers: processes may have different numbers of batches.
    module, dtype = getattr(model, "module", model), next(model.parameters()).dtype
    with fabric.autocast():
        parts = [module(x.to(dtype) if x.is_floating_point() else x) for x, _ in share]
    model.train(was_training)
    return gather_rows(fabric, at_least_float32(torch.cat(parts))), gather_rows(fabric, share.examples.targets)


def gather_rows(fabric: Fabric, values: Tensor) -> Tensor:
    """Concatenate the rows of all processes, in rank order; their numbers may differ."""
    if fabric.world_size == 1:
        return values
    sizes = fabric.all_gather(torch.tensor(len(values), device=fabric.device))
    assert isinstance(sizes, Tensor)
    padded = torch.zeros(int(sizes.max()), *values.shape[1:], dtype=values.dtype, device=fabric.device)
    padded[: len(values)] = values
    blocks = fabric.all_gather(padded)
    assert isinstance(blocks, Tensor)
    return torch.cat([block[: int(size)] for block, size in zip(blocks, sizes, strict=True)])
