"""The whole state of a training, put on disk and taken up again."""

from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch import distributed as dist

from metacal.errors import InvalidValueError, TrainingError
from metacal.lab.training.checkpoints import taking_up
from metacal.lab.training.events import CheckpointSaved, Notice
from metacal.lab.training.progress import Progress
from metacal.lab.training.setup import Training

Value = TypeVar("Value")


def save(training: Training, progress: Progress) -> None:
    """Put the whole state on disk; every process takes part, the first one writes, the others wait for it.

    Whoever calls it has called `check_finite` since the last step.
    """
    fabric = training.fabric
    per_process = everyone(fabric, {"progress": progress.state_dict(), "random": random_state(fabric)})
    if fabric.is_global_zero:
        training.checkpoints.save_last(
            {
                "model": training.model.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "objectives": [phase.objective.state_dict() for phase in training.phases],
                "precision": fabric.strategy.precision.state_dict(),
                "processes": per_process,
            }
        )
    fabric.barrier()
    training.emit(CheckpointSaved(progress.epoch, progress.batch))


def restore(training: Training, progress: Progress) -> None:
    """Take up the newest state that is whole, if there is one."""
    state, complaints = training.checkpoints.load_last()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Going on from the one before."))
    if state is not None:
        with taking_up(training.checkpoints.folder):
            take_up(state, training, progress)


def take_up(state: dict[str, Any], training: Training, progress: Progress) -> None:
    """Put a state where it belongs."""
    fabric = training.fabric
    processes = state["processes"]
    is_same = len(processes) == fabric.world_size
    if not is_same and (processes[0]["progress"]["batch"] or processes[0]["progress"]["phase"]):
        raise InvalidValueError(
            f"`devices` must be {len(processes)}, as when the epoch was begun, got {fabric.world_size}."
        )
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    for phase, saved in zip(training.phases, state["objectives"], strict=True):
        phase.objective.load_state_dict(saved)
    fabric.strategy.precision.load_state_dict(state["precision"])
    own = processes[fabric.global_rank if is_same else 0]
    progress.load_state_dict(own["progress"], fabric.device)
    if is_same:
        set_random_state(own["random"], fabric)


def everyone(fabric: Fabric, value: Value) -> list[Value]:
    """A value of every process, in rank order, on every process."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    dist.all_gather_object(values, value)
    return values


def random_state(fabric: Fabric) -> dict[str, Tensor]:
    """The state of this process's random streams."""
    states = {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(fabric.device)
    return states


def set_random_state(random: dict[str, Tensor], fabric: Fabric) -> None:
    """Take up this process's random streams."""
    torch.set_rng_state(random["cpu"].clone())
    if "cuda" in random and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(random["cuda"].clone(), fabric.device)


def check_finite(training: Training, progress: Progress) -> None:
    """Raise on every process if a loss of the running epoch, or a weight of any process, is not finite."""
    found = everyone(training.fabric, _complaint(training, progress))
    complaint = next((text for text in found if text is not None), None)
    if complaint is not None:
        raise TrainingError(f"{complaint}: lower `lr`, or set `clip_norm`. The last checkpoint is from before.")


def _complaint(training: Training, progress: Progress) -> str | None:
    losses = progress.losses()
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad):
        place = f"epoch {progress.epoch + 1}, batch {int(bad[0]) + 1}"
        return f"The training loss became {float(losses[bad[0]])} in {place}"
    weights = [parameter.isfinite().all() for parameter in training.model.parameters()]
    if not bool(torch.stack(weights).all()):
        return f"A weight is no longer finite in epoch {progress.epoch + 1}"
    return None
