"""Checkpoints of a training run: written atomically, hashed, and with a spare copy.

A checkpoint is a header, the SHA-256 of the rest, and tensors and plain values as `torch.save` writes them. It is read
with ``weights_only``, so that opening one runs no code.
"""

import hashlib
import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch import distributed as dist

from metacal.errors import InvalidValueError, MetacalError, StorageError, TrainingError
from metacal.files import read_bytes, remove_leftovers, write_whole
from metacal.functional.inputs import class_logits
from metacal.lab.training.events import CheckpointSaved, Notice

if TYPE_CHECKING:
    from metacal.lab.training.loop import Training

MARK = b"metacal checkpoint 1\n"
DIGEST = hashlib.sha256().digest_size
Value = TypeVar("Value")


class Progress:
    """Counters, and the figures of the current epoch, which stay on the device until it ends."""

    def __init__(self) -> None:
        self.epoch = self.phase = self.batch = 0  # finished epochs, phases of the current epoch, batches of that
        self.best_error = math.inf  # lowest value so far of what selects the epoch: validation error, or refined NLL
        self.best_epoch = 0  # the epoch with that value, from 1; 0 is none
        self.seconds = 0.0  # training time
        self._seen: list[tuple[Tensor, ...]] = []  # losses by batch, confidences and correctness by sample
        self._later: list[Tensor] = []  # losses of later phases, only checked to be finite

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: its loss summed over samples, logits ``(n, K)`` (or one per sample) and targets."""
        top = torch.softmax(class_logits(logits), dim=1).max(dim=1)
        self._seen.append((loss.detach().double().reshape(1), top.values, top.indices == targets))

    def add_later(self, loss: Tensor) -> None:
        """Add the loss of a batch of a later phase."""
        self._later.append(loss.detach().double().reshape(1))

    def losses(self) -> Tensor:
        """Losses of all batches of the current epoch so far, over all phases."""
        return torch.cat([*(losses for losses, *_ in self._seen), *self._later]) if self._seen else torch.zeros(0)

    def seen(self) -> tuple[Tensor, ...]:
        """Losses ``(batches,)``, confidences and correctness ``(n,)`` of the current epoch."""
        return tuple(map(torch.cat, zip(*self._seen, strict=True))) or (torch.zeros(0),) * 3

    def next_epoch(self) -> None:
        """Close the current epoch."""
        self.epoch, self.phase, self.batch, self._seen, self._later = self.epoch + 1, 0, 0, [], []

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        counters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        seen = (values.cpu() for values in self.seen())
        return {**counters, **dict(zip(("losses", "confidences", "correct"), seen, strict=True))}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore a saved state, with its tensors on a device."""
        for name in ("epoch", "phase", "batch", "best_error", "best_epoch", "seconds"):
            setattr(self, name, state[name])
        seen = tuple(state[name].to(device) for name in ("losses", "confidences", "correct"))
        self._seen = [seen] if len(seen[0]) else []


class Checkpoints:
    """The checkpoints of a run in its folder: ``last``, the previous one, and ``best`` with a copy."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.last, self.previous = self.folder / "last.ckpt", self.folder / "previous.ckpt"
        self.best, self.spare = self.folder / "best.ckpt", self.folder / "best-copy.ckpt"

    def save_last(self, state: dict[str, Any]) -> None:
        """Write the state to resume from, keeping the previous one."""
        fresh = self.folder / "next.ckpt"
        write_checkpoint(state, fresh)
        try:
            if self.last.exists():
                os.replace(self.last, self.previous)
            os.replace(fresh, self.last)
        except OSError as error:
            raise StorageError(f"{self.last} could not be written: {error.strerror}.") from None

    def save_best(self, state: dict[str, Any]) -> None:
        """Write the best state, with a spare copy."""
        write_checkpoint(state, self.best, self.spare)

    def load_last(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Return the newest intact state, or None, and messages about damaged ones."""
        remove_leftovers(self.folder)
        return first_intact(self.last, self.previous)

    def load_best(self) -> tuple[dict[str, Any], list[str]]:
        """Return the best state, and messages about damaged ones."""
        state, complaints = first_intact(self.best, self.spare)
        if state is None:
            raise StorageError(f"{self.best} could not be read: no such file.")
        return state, complaints


def first_intact(*paths: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the first intact checkpoint, or None, and messages about damaged ones before it.

    Raises:
        StorageError: all existing ones are damaged.
    """
    complaints: list[str] = []
    for path in filter(Path.exists, paths):
        try:
            return read_checkpoint(path), complaints
        except StorageError as error:
            complaints.append(str(error))
    if complaints:
        raise StorageError(f"{' '.join(complaints)} No other checkpoint is left to resume from.")
    return None, complaints


def write_checkpoint(state: dict[str, Any], *paths: Path) -> None:
    """Atomically write the same state to one or more checkpoints."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    parts = (MARK, hashlib.sha256(data).digest(), data)
    for path in paths:
        write_whole(path, lambda file: file.writelines(parts))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read the state in a checkpoint, to the CPU.

    Raises:
        StorageError: the file is missing, truncated, altered, or not a checkpoint.
    """
    data = read_bytes(path)
    header = len(MARK) + DIGEST
    if data[:header] != MARK + hashlib.sha256(memoryview(data)[header:]).digest():
        raise StorageError(f"{path} is damaged: its contents do not have the hash it was written with.")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data[header:]), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and its unpickler raise a dozen kinds for foreign data
        raise StorageError(f"{path} must hold the state of a run, and was not opened: {_reason(error)}.") from None
    if not isinstance(state, dict):
        raise StorageError(f"{path} must hold the state of a run, got a {type(state).__name__}.")
    return state


@contextmanager
def explain_mismatch(folder: Path) -> Iterator[None]:
    """Turn any error from the state of another run into a StorageError."""
    try:
        yield
    except MetacalError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StorageError(
            f"The checkpoints in {folder} do not belong to this run ({_reason(error)}). Copy the right ones into the "
            "folder, or delete them to start the run again."
        ) from None


def _reason(error: Exception) -> str:
    """The error's type and first sentence; torch's second one advises to run the code of a pickle."""
    first = next(iter(str(error).splitlines()), "").partition(". ")[0]
    return f"{type(error).__name__}: {first}".rstrip(".: ")


def save(training: "Training", progress: Progress) -> None:
    """Write the whole state, to be called after `check_finite`; all processes wait for the first one to write."""
    fabric, random = training.fabric, {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(fabric.device)
    per_process = gather_values(fabric, {"progress": progress.state_dict(), "random": random})
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
    """Resume from the newest intact state, if any."""
    state, complaints = training.checkpoints.load_last()
    for complaint in complaints:
        training.emit(Notice(f"{complaint} Resuming from the previous one."))
    if state is not None:
        with explain_mismatch(training.checkpoints.folder):
            _load_state(state, training, progress)


def _load_state(state: dict[str, Any], training: "Training", progress: Progress) -> None:
    fabric, processes = training.fabric, state["processes"]
    is_same = len(processes) == fabric.world_size
    if not is_same and (processes[0]["progress"]["batch"] or processes[0]["progress"]["phase"]):
        raise InvalidValueError(
            f"`devices` must be {len(processes)}, as when the epoch started, got {fabric.world_size}."
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
        torch.set_rng_state(own["random"]["cpu"].clone())
        if "cuda" in own["random"] and fabric.device.type == "cuda":
            torch.cuda.set_rng_state(own["random"]["cuda"].clone(), fabric.device)


def gather_values(fabric: Fabric, value: Value) -> list[Value]:
    """Gather the values of all processes, in rank order, on every process."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    dist.all_gather_object(values, value)
    return values


def check_finite(training: "Training", progress: Progress) -> None:
    """Raise on every process if, on any of them, a loss of the current epoch or a weight is not finite."""
    losses, complaint = progress.losses(), None
    bad = (~torch.isfinite(losses)).nonzero()
    if len(bad):
        place = f"epoch {progress.epoch + 1}, batch {int(bad[0]) + 1}"
        complaint = f"The training loss became {float(losses[bad[0]])} in {place}"
    elif not bool(torch.stack([parameter.isfinite().all() for parameter in training.model.parameters()]).all()):
        complaint = f"A weight is no longer finite in epoch {progress.epoch + 1}"
    if complaint := next(filter(None, gather_values(training.fabric, complaint)), None):
        raise TrainingError(f"{complaint}: lower `lr`, or set `clip_norm`. The last checkpoint is older.")
