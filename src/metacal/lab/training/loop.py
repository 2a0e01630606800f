"""The training loop: every method, on one device or many, from the start or from where it was left."""

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
from metacal.functional.inputs import at_least_float32, class_logits
from metacal.functional.temperature import temperature_with_prior
from metacal.lab.data.batches import Batches
from metacal.lab.training.averaging import AveragedWeights
from metacal.lab.training.checkpoints import Checkpoints, Progress, check_finite, restore, save
from metacal.lab.training.events import (
    BatchDone,
    EpochDone,
    Listener,
    Notice,
    Stopped,
    StopRequest,
    TrainingBegan,
    silence,
)
from metacal.lab.training.spec import RunSpec
from metacal.lab.training.training_loss import TrainingLoss

ASK_EVERY = 16
"""Batches from one moment to the next at which several processes agree on whether to stop."""


@dataclass(frozen=True)
class Phase:
    """One pass over some batches with one loss; an epoch is one phase, or several after each other."""

    batches: Batches
    loss: TrainingLoss
    lr: float  # before the schedule


@dataclass(frozen=True)
class Training:
    """Everything the loop works with. The first phase's figures are the epoch's training figures."""

    spec: RunSpec  # epochs, schedule, accumulation, clipping, patience, and what the best epoch is chosen by
    fabric: Fabric
    model: _FabricModule
    optimizer: Optimizer
    phases: Sequence[Phase]
    val: Batches  # this process's share of the validation set, unshuffled
    checkpoints: Checkpoints
    average: AveragedWeights | None = None  # what is validated and scored instead of the model
    save_seconds: float = 600.0  # within an epoch the state is saved this often
    emit: Listener = silence
    stop: StopRequest = field(default_factory=StopRequest)


def train(training: Training, *, resume: bool = False) -> Progress:
    """Train to the end, or until asked to stop; ``resume`` goes on from the last checkpoint, if there is one.

    Returns:
        The final progress; the best state is in the checkpoints.

    Raises:
        Stopped: a signal asked for it; the state is saved.
        TrainingError: the loss is not finite; the last checkpoint is from before.
        StorageError: a checkpoint could not be written or read.
    """
    spec, progress = training.spec, Progress()
    if resume:
        restore(training, progress)
    steps = sum(len(phase.batches) for phase in training.phases)
    done = sum(len(phase.batches) for phase in training.phases[: progress.phase]) + progress.batch
    training.emit(TrainingBegan(spec.epochs, steps, progress.epoch, done))
    while progress.epoch < spec.epochs:
        if spec.patience is not None and progress.epoch - progress.best_epoch >= spec.patience:
            what = "error" if spec.select == "accuracy" else "NLL after a temperature"
            training.emit(Notice(f"Stopped early: no better validation {what} in {spec.patience} epochs."))
            break
        run_epoch(training, progress)
    return progress


def run_epoch(training: Training, progress: Progress) -> None:
    """The rest of the running epoch: its batches, its figures, its checkpoint."""
    training.model.train()
    clock = Clock(progress)
    factor = training.spec.lr_factor(progress.epoch)
    for number in range(progress.phase, len(training.phases)):
        phase = training.phases[number]
        for group in training.optimizer.param_groups:
            group["lr"] = phase.lr * factor
        for x, y in phase.batches.epoch(progress.epoch, start=progress.batch):
            whole = phase.batches.size(progress.epoch, progress.batch)
            loss, logits = train_batch(training, phase, x, y, whole)
            progress.batch += 1
            if number == 0:
                progress.add(loss, logits, y)
            else:
                progress.add_later(loss)
            training.emit(BatchDone(progress.epoch, progress.batch, loss / len(y)))
            clock.tick()
            is_asked = should_stop(training, progress, is_last=progress.batch == len(phase.batches))
            if is_asked or (clock.since_save > training.save_seconds and training.fabric.world_size == 1):
                check_finite(training, progress)
                save(training, progress)
                clock.since_save = 0.0
            if is_asked:
                raise Stopped(training.stop.signal)
        progress.phase, progress.batch = number + 1, 0
    close_epoch(training, progress, training.phases[0].lr * factor)
    clock.tick()


def train_batch(training: Training, phase: Phase, x: Any, y: Tensor, whole: int) -> tuple[Tensor, Tensor]:
    """One step of the optimiser.

    Under DDP gradients are averaged over processes, whose shares may differ in size: each loss is scaled so that the
    joint gradient is that of the mean, or the sum, over the whole batch, of ``whole`` samples.

    Returns:
        The loss summed over this process's samples, and their logits; both detached.
    """
    fabric, spec = training.fabric, training.spec
    parts = list(zip(x.chunk(spec.accumulate), y.chunk(spec.accumulate), strict=True))
    training.optimizer.zero_grad()
    total, logits = torch.zeros((), device=y.device), []
    is_mean = phase.loss.reduction == "mean"
    for number, (inputs, targets) in enumerate(parts):
        is_last = number == len(parts) - 1
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


def close_epoch(training: Training, progress: Progress, lr: float) -> None:
    """Figures of the epoch, emitted and kept: first its record, then the best state, then the state to go on from."""
    fabric, loss = training.fabric, training.phases[0].loss
    check_finite(training, progress)
    seen = progress.seen()
    if fabric.world_size > 1:
        seen = tuple(gather_rows(fabric, values) for values in seen)  # type: ignore[assignment]
    scored = averaged_model(training, progress)
    logits, targets = predict(fabric, scored, training.val)
    if not bool(torch.isfinite(logits).all()):
        raise TrainingError(
            f"The validation logits are no longer finite in epoch {progress.epoch + 1}: lower `lr` or set `clip_norm`. "
            "The last checkpoint is from before."
        )
    record = {
        "epoch": float(progress.epoch + 1),
        "lr": lr,
        **progress.figures(seen),
        "val_loss": float(cross_entropy(logits=logits, targets=targets)),
        "val_error": error_rate(logits, targets),
        "val_ece": float(expected_calibration_error(logits=logits, targets=targets, validate=False)),
        "val_dece": float(dece(logits=logits, targets=targets)),
        "val_refined_nll": refined_nll(logits, targets),
        **loss.summary(),
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
    training.emit(EpochDone(progress.epoch, record, tensors, is_best))
    if is_best and fabric.is_global_zero:
        best = {"epoch": progress.epoch, "model": scored.state_dict(), "learned": learned}
        training.checkpoints.save_best(best)
    save(training, progress)


def averaged_model(training: Training, progress: Progress) -> nn.Module:
    """What the epoch is judged by: the model, or the average of its weights, which starts afresh with its first."""
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
    """NLL after the temperature that is best for these samples."""
    wide = class_logits(logits).double()
    temperature = temperature_with_prior(logits=wide, targets=targets, iterations=40)
    return float(cross_entropy(logits=wide / temperature, targets=targets))


def error_rate(logits: Tensor, targets: Tensor) -> float:
    """Share of samples whose top class is another one."""
    return float((class_logits(logits).argmax(dim=1) != targets).double().mean())


def should_stop(training: Training, progress: Progress, *, is_last: bool) -> bool:
    """Whether a signal came, to this process or another one; several processes ask each other only now and then."""
    if training.fabric.world_size == 1:
        return bool(training.stop)
    if progress.batch % ASK_EVERY and not is_last:
        return False
    asked = torch.tensor(float(bool(training.stop)), device=training.fabric.device)
    return float(training.fabric.all_reduce(asked, reduce_op="sum")) > 0  # type: ignore[arg-type]


class Clock:
    """Adds the time that passes to the progress, and knows how long ago the last save was."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.since_save = progress, 0.0
        self._last = time.perf_counter()

    def tick(self) -> None:
        """Time goes on."""
        now = time.perf_counter()
        self.progress.seconds += now - self._last
        self.since_save += now - self._last
        self._last = now


@torch.no_grad()
def predict(fabric: Fabric, model: nn.Module, share: Batches) -> tuple[Tensor, Tensor]:
    """Logits ``(n, K)`` in float32 or wider and targets ``(n,)`` of all examples, in their order, on every process.

    Args:
        fabric: what the model was set up by.
        model: left in the mode it was in.
        share: unshuffled batches of this process's share of the examples.
    """
    was_training = model.training
    model.eval()
    # Not through DDP, whose forward would join buffers over processes that may have different numbers of batches.
    module, dtype = getattr(model, "module", model), next(model.parameters()).dtype
    with fabric.autocast():
        parts = [module(x.to(dtype) if x.is_floating_point() else x) for x, _ in share]
    model.train(was_training)
    logits, targets = at_least_float32(torch.cat(parts)), share.examples.targets
    if fabric.world_size == 1:
        return logits, targets
    return gather_rows(fabric, logits), gather_rows(fabric, targets)


def gather_rows(fabric: Fabric, values: Tensor) -> Tensor:
    """Rows of all processes after each other, in rank order; their numbers may differ."""
    sizes = fabric.all_gather(torch.tensor(len(values), device=fabric.device))
    assert isinstance(sizes, Tensor)
    padded = torch.zeros(int(sizes.max()), *values.shape[1:], dtype=values.dtype, device=fabric.device)
    padded[: len(values)] = values
    blocks = fabric.all_gather(padded)
    assert isinstance(blocks, Tensor)
    return torch.cat([block[: int(size)] for block, size in zip(blocks, sizes, strict=True)])
