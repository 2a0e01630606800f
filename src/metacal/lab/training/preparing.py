"""Everything the training loop is given: model, optimiser, phases, schedule, checkpoints."""

from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from metacal.errors import InvalidValueError
from metacal.lab.data import Batches, Dataset, Splits
from metacal.lab.data.domains import Turn
from metacal.lab.training.build_loss import main_objective, sum_of
from metacal.lab.training.checkpoints import Checkpoints
from metacal.lab.training.events import EpochDone, Event, Listener, Notice, TrainingBegan, silence
from metacal.lab.training.run_data import batches_of, evaluation_batches
from metacal.lab.training.run_folder import RunFolder
from metacal.lab.training.schedule import Schedule, build_optimizer
from metacal.lab.training.setup import Phase, Training
from metacal.lab.training.spec import RunSpec
from metacal.lab.training.stop import StopRequest
from metacal.lab.training.training_loss import PlainObjective
from metacal.metalearning.model_calls import eagerly


def prepare(
    spec: RunSpec,
    dataset: Dataset,
    splits: Splits,
    module: nn.Module,
    fabric: Fabric,
    folder: RunFolder,
    emit: Listener,
    stop: StopRequest,
) -> Training:
    """Objects for the loop."""
    optimizer = build_optimizer(
        spec.optimizer,
        module.parameters(),
        lr=spec.lr,
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        weight_decay=spec.weight_decay,
    )
    if spec.compile:
        module.compile()
    model, optimizer = fabric.setup(module, optimizer)
    val = evaluation_batches(spec, dataset, splits.val, fabric)
    check_output(model, val, dataset, fabric)
    torch.manual_seed(spec.seed + 1000 * fabric.global_rank)  # dropout: another stream on every process
    turn = Turn()  # what domain the training batch is of: the meta batch is of another
    objective = main_objective(spec, dataset, splits, model, optimizer, fabric, turn)
    phases = [Phase(batches_of(spec, dataset, splits, "train", fabric, turn), objective, spec.lr)]
    if spec.method.interleaved:
        calibration = PlainObjective(model, sum_of(spec.method.interleaved), "mean")
        batches = batches_of(spec, dataset, splits, "meta", fabric, Turn())
        phases.append(Phase(batches, calibration, spec.interleaved_lr or spec.lr))
    if spec.schedule == "multistep" and spec.milestones and spec.milestones[0] >= spec.epochs:
        emit(Notice(f"The learning rate never drops: milestones {list(spec.milestones)} with {spec.epochs} epochs."))
    return Training(
        fabric=fabric,
        model=model,
        optimizer=optimizer,
        phases=phases,
        val=val,
        schedule=Schedule(spec.schedule, spec.epochs, spec.milestones, spec.decay),
        epochs=spec.epochs,
        checkpoints=Checkpoints(folder.checkpoints),
        clip_norm=spec.clip_norm,
        accumulate=spec.accumulate,
        select=spec.select,
        patience=spec.patience,
        emit=keeping(folder, emit) if fabric.is_global_zero else silence,
        stop=stop,
    )


def keeping(folder: RunFolder, emit: Listener) -> Listener:
    """A listener that keeps every epoch before it passes the event on."""

    def keep(event: Event) -> None:
        if isinstance(event, TrainingBegan):
            folder.drop_epochs(event.epoch)
        elif isinstance(event, EpochDone):
            folder.add_epoch(event.record, event.tensors)
        emit(event)

    return keep


@torch.no_grad()
def check_output(module: Any, val: Batches, dataset: Dataset, fabric: Fabric) -> None:
    """Raise unless the model gives logits of this data's classes; before anything is written."""
    x, _ = next(iter(val))
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    # Compiled now, it would not notice what watches its layers later on.
    with torch.random.fork_rng(devices=devices), fabric.autocast(), eagerly():
        module.eval()
        try:
            logits = module.module(x.to(next(module.parameters()).dtype) if x.is_floating_point() else x)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidValueError(f"`model` must take inputs of shape {tuple(x.shape)}, got: {reason}.") from None
        module.train()
    wanted = (len(x), dataset.num_classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidValueError(f"`model` must return logits of shape {wanted}, got {found}.")
