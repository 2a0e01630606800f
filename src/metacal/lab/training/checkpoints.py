"""Checkpoints that survive anything: written whole, hashed, and the one before is kept.

A file is a mark, the SHA-256 of what follows, and what `torch.save` makes of tensors and plain values; it is read
with ``weights_only``, so that opening one runs no code.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from metacal.errors import MetacalError, StorageError
from metacal.files import remove_leftovers, write_whole

MARK = b"metacal checkpoint 1\n"
DIGEST = hashlib.sha256().digest_size


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
        """The newest state that is whole, or None if there is none, and what was found wrong on the way to it."""
        remove_leftovers(self.folder)
        return first_whole((self.last, self.previous))

    def load_best(self) -> tuple[dict[str, Any], list[str]]:
        """The state that did best, and what was found wrong on the way to it."""
        state, complaints = first_whole((self.best, self.spare))
        if state is None:
            raise StorageError(f"{self.best} could not be read: it is not there.")
        return state, complaints


def first_whole(paths: Sequence[Path]) -> tuple[dict[str, Any] | None, list[str]]:
    """The first of these checkpoints that is whole, None if none is there, and what was found wrong before it.

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
        raise StorageError(f"{' '.join(complaints)} No other checkpoint is left to go on from.")
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
    """The state in a checkpoint, on the CPU: what takes it up puts it where it belongs.

    Raises:
        StorageError: it is missing, cut short, altered, or something else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror}.") from None
    header = len(MARK) + DIGEST
    found = hashlib.sha256(memoryview(data)[header:]).digest()
    if data[: len(MARK)] != MARK or data[len(MARK) : header] != found:
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
def taking_up(folder: Path) -> Iterator[None]:
    """Turn what a state leads to that is whole, but not one of this training, into a StorageError."""
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
