"""The whole state of a training, put on disk and taken up again."""

import torch
from lightning_fabric import Fabric
from torch import Tensor

from metacal.errors import InvalidValueError, TrainingError
from metacal.training.events import CheckpointSaved, Notice
from metacal.training.progress import Progress
from metacal.training.setup import Training


def save(training: Training, progress: Progress) -> None:
    """Put the whole state on disk; every process takes part, the first one writes."""
    fabric = training.fabric
    check_finite(progress.seen()[0], progress)
    random = random_state(fabric)
    if fabric.is_global_zero:
        training.checkpoints.save_last(
            {
                "model": training.model.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "objectives": [phase.objective.state_dict() for phase in training.phases],
                "progress": progress.state_dict(),
                "precision": fabric.strategy.precision.state_dict(),
                "random": random,
                "world_size": fabric.world_size,
            }
        )
    training.emit(CheckpointSaved(progress.epoch, progress.batch))


def restore(training: Training, progress: Progress) -> None:
    """Take up the newest state that is whole, if there is one."""
    fabric = training.fabric
    state, complaints = training.checkpoints.load_last(fabric.device)
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Going on from the one before."))
    if state is None:
        return
    if state["world_size"] != fabric.world_size and state["progress"]["batch"]:
        raise InvalidValueError(
            f"`devices` must be {state['world_size']}, as when the epoch was begun, got {fabric.world_size}."
        )
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    for phase, saved in zip(training.phases, state["objectives"], strict=True):
        phase.objective.load_state_dict(saved)
    progress.load_state_dict(state["progress"])
    fabric.strategy.precision.load_state_dict(state["precision"])
    if fabric.global_rank < len(state["random"]["cpu"]):
        set_random_state(state["random"], fabric)


def random_state(fabric: Fabric) -> dict[str, list[Tensor]]:
    """The state of the random streams of every process."""
    states = {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(fabric.device)
    if fabric.world_size == 1:
        return {name: [value] for name, value in states.items()}
    gathered = {name: fabric.all_gather(value.to(fabric.device)) for name, value in states.items()}
    return {name: [row.cpu() for row in value] for name, value in gathered.items() if isinstance(value, Tensor)}


def set_random_state(random: dict[str, list[Tensor]], fabric: Fabric) -> None:
    """Take up this process's random streams."""
    torch.set_rng_state(random["cpu"][fabric.global_rank].cpu())
    if "cuda" in random and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(random["cuda"][fabric.global_rank].cpu(), fabric.device)


def check_finite(losses: Tensor, progress: Progress) -> None:
    """Raise if a loss of the running epoch was not finite."""
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad):
        raise TrainingError(
            f"The training loss became {float(losses[bad[0]])} in epoch {progress.epoch + 1}, batch {int(bad[0]) + 1}: "
            "lower `lr`, or set `clip_norm`. The last checkpoint is from before."
        )
