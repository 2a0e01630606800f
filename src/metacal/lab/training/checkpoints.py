"""Where a training is, and how that survives anything: checkpoints are written whole, hashed, and one more is kept.

A checkpoint is a mark, the SHA-256 of what follows, and what `torch.save` makes of tensors and plain values; it is read
with ``weights_only``, so that opening one runs no code.
"""

import hashlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch import distributed as dist

from metacal.errors import InvalidValueError, MetacalError, StorageError, TrainingError
from metacal.files import read_bytes, remove_leftovers, write_whole
from metacal.functional.binning import calibration_error, equal_width_statistics
from metacal.functional.inputs import class_logits
from metacal.lab.training.events import CheckpointSaved, Notice

if TYPE_CHECKING:
    from metacal.lab.training.loop import Training

MARK = b"metacal checkpoint 1\n"
DIGEST = hashlib.sha256().digest_size
Value = TypeVar("Value")


class Progress:
    """Counters and the running epoch's figures, kept on the device until the epoch is over."""

    def __init__(self) -> None:
        self.epoch = self.phase = self.batch = 0  # epochs done, phases done of the running one, batches of that
        self.best_error = math.inf  # lowest validation error so far, or whatever epochs are chosen by
        self.best_epoch = 0  # the epoch that had it, from 1; 0 is none
        self.seconds = 0.0  # spent training
        self._losses: list[Tensor] = []
        self._later_losses: list[Tensor] = []
        self._confidences: list[Tensor] = []
        self._correct: list[Tensor] = []

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: its loss summed over samples, logits ``(n, K)`` (or one per sample) and targets."""
        self._losses.append(loss.detach().double())
        top = torch.softmax(class_logits(logits), dim=1).max(dim=1)
        self._confidences.append(top.values)
        self._correct.append(top.indices == targets)

    def add_later(self, loss: Tensor) -> None:
        """Add a batch of a later phase: only whether its loss is finite matters."""
        self._later_losses.append(loss.detach().double())

    def losses(self) -> Tensor:
        """Losses of all batches of the running epoch so far, whatever their phase."""
        return torch.stack([*self._losses, *self._later_losses]) if self._losses else torch.zeros(0)

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        """Losses ``(batches,)``, confidences and correctness ``(n,)`` of the running epoch."""
        if not self._losses:
            return torch.zeros(0, dtype=torch.float64), torch.zeros(0), torch.zeros(0, dtype=torch.bool)
        return torch.stack(self._losses), torch.cat(self._confidences), torch.cat(self._correct)

    def figures(self, seen: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
        """Mean loss, error and ECE of what was seen."""
        losses, confidences, correct = seen
        return {
            "train_loss": float(losses.sum()) / len(correct),
            "train_error": 1.0 - float(correct.double().mean()),
            "train_ece": float(calibration_error(equal_width_statistics(confidences, correct))),
        }

    def next_epoch(self) -> None:
        """Close the running epoch."""
        self.epoch, self.phase, self.batch = self.epoch + 1, 0, 0
        self._losses, self._later_losses, self._confidences, self._correct = [], [], [], []

    def state_dict(self) -> dict[str, Any]:
        """All of it, as tensors and plain values."""
        losses, confidences, correct = (values.cpu() for values in self.seen())
        counters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**counters, "losses": losses, "confidences": confidences, "correct": correct}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from a saved state, with its tensors on a device."""
        for name in ("epoch", "phase", "batch", "best_error", "best_epoch", "seconds"):
            setattr(self, name, state[name])
        has_seen = len(state["losses"]) > 0
        self._losses = list(state["losses"].to(device).unbind()) if has_seen else []
        self._confidences = [state["confidences"].to(device)] if has_seen else []
        self._correct = [state["correct"].to(device)] if has_seen else []


class Checkpoints:
    """The checkpoints of one run: ``last``, the one before it, and ``best`` with a spare copy.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.last, self.previous = self.folder / "last.ckpt", self.folder / "previous.ckpt"
        self.best, self.spare = self.folder / "best.ckpt", self.folder / "best-copy.ckpt"

    def save_last(self, state: dict[str, Any]) -> None:
        """Write the state to go on from; what was last becomes the one before."""
        fresh = self.folder / "next.ckpt"
        write_checkpoint(state, fresh)
        try:
            if self.last.exists():
                os.replace(self.last, self.previous)
            os.replace(fresh, self.last)
        except OSError as error:
            raise StorageError(f"{self.last} could not be written: {error.strerror}.") from None

    def save_best(self, state: dict[str, Any]) -> None:
        """Write the state that did best, twice: no later one takes its place."""
        write_checkpoint(state, self.best, self.spare)

    def load_last(self) -> tuple[dict[str, Any] | None, list[str]]:
        """The newest state that is whole, or None if there is none, and complaints about damaged ones."""
        remove_leftovers(self.folder)
        return first_whole((self.last, self.previous))

    def load_best(self) -> tuple[dict[str, Any], list[str]]:
        """The state that did best, and complaints about damaged ones."""
        state, complaints = first_whole((self.best, self.spare))
        if state is None:
            raise StorageError(f"{self.best} could not be read: it is not there.")
        return state, complaints


def first_whole(paths: Sequence[Path]) -> tuple[dict[str, Any] | None, list[str]]:
    """The first of these checkpoints that is whole, None if none is there, and complaints about those before it.

    Raises:
        StorageError: some are there, and all of them are damaged.
    """
    complaints: list[str] = []
    for path in paths:
        if not path.exists():
            continue
        try:
            return read_checkpoint(path), complaints
        except StorageError as error:
            complaints.append(str(error))
    if complaints:
        raise StorageError(f"{' '.join(complaints)} No other checkpoint is left to resume from.")
    return None, complaints


def write_checkpoint(state: dict[str, Any], *paths: Path) -> None:
    """Replace a checkpoint, or several with the same state, each in one move."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    digest = hashlib.sha256(data).digest()

    def fill(file: Any) -> None:
        file.write(MARK)
        file.write(digest)
        file.write(data)

    for path in paths:
        write_whole(path, fill)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, on the CPU.

    Raises:
        StorageError: it is missing, cut short, altered, or something else.
    """
    data = read_bytes(path)
    header = len(MARK) + DIGEST
    digest = hashlib.sha256(memoryview(data)[header:]).digest()
    if data[: len(MARK)] != MARK or data[len(MARK) : header] != digest:
        raise StorageError(f"{path} is damaged: its contents do not have the hash it was written with.")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data[header:]), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and its unpickler raise a dozen kinds for what `torch.save` has not written
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise StorageError(f"{path} holds no state of a training, and is not opened: {reason}") from None
    if not isinstance(state, dict):
        raise StorageError(f"{path} holds no state of a training, but a {type(state).__name__}.")
    return state


@contextmanager
def explain_mismatch(folder: Path) -> Iterator[None]:
    """Turn whatever the state of another training leads to into a StorageError."""
    try:
        yield
    except MetacalError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise StorageError(
            f"The checkpoints in {folder} are not those of this run ({reason}). Copy them again from where the run was "
            "made, or delete them: the run then starts again."
        ) from None


def save(training: "Training", progress: Progress) -> None:
    """Put the whole state on disk; every process takes part, the first one writes, the others wait for it.

    Call `check_finite` first.
    """
    fabric = training.fabric
    per_process = gather_values(fabric, {"progress": progress.state_dict(), "random": random_state(fabric)})
    if fabric.is_global_zero:
        training.checkpoints.save_last(
            {
                "model": training.model.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "objectives": [phase.loss.state_dict() for phase in training.phases],
                "precision": fabric.strategy.precision.state_dict(),
                **({} if training.average is None else {"average": training.average.model.state_dict()}),
                "processes": per_process,
            }
        )
    fabric.barrier()
    training.emit(CheckpointSaved(progress.epoch, progress.batch))


def restore(training: "Training", progress: Progress) -> None:
    """Go on from the newest state that is whole, if there is one."""
    state, complaints = training.checkpoints.load_last()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Going on from the one before."))
    if state is not None:
        with explain_mismatch(training.checkpoints.folder):
            load_state(state, training, progress)


def load_state(state: dict[str, Any], training: "Training", progress: Progress) -> None:
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
        phase.loss.load_state_dict(saved)
    if training.average is not None:
        training.average.model.load_state_dict(state["average"])
    fabric.strategy.precision.load_state_dict(state["precision"])
    own = processes[fabric.global_rank if is_same else 0]
    progress.load_state_dict(own["progress"], fabric.device)
    if is_same:
        set_random_state(own["random"], fabric)


def gather_values(fabric: Fabric, value: Value) -> list[Value]:
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
    """Restore this process's random streams."""
    torch.set_rng_state(random["cpu"].clone())
    if "cuda" in random and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(random["cuda"].clone(), fabric.device)


def check_finite(training: "Training", progress: Progress) -> None:
    """Raise on every process if a loss of the running epoch, or a weight of any process, is not finite."""
    complaints = gather_values(training.fabric, _complaint(training, progress))
    if complaint := next(filter(None, complaints), None):
        raise TrainingError(f"{complaint}: lower `lr`, or set `clip_norm`. The last checkpoint is from before.")


def _complaint(training: "Training", progress: Progress) -> str | None:
    losses = progress.losses()
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad):
        place = f"epoch {progress.epoch + 1}, batch {int(bad[0]) + 1}"
        return f"The training loss became {float(losses[bad[0]])} in {place}"
    weights = [parameter.isfinite().all() for parameter in training.model.parameters()]
    if not bool(torch.stack(weights).all()):
        return f"A weight is no longer finite in epoch {progress.epoch + 1}"
    return None
