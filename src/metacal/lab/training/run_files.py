"""The files of a run: those of a complete one have checksums, and reading a damaged one raises what to do.

Checkpoints have their own hashes. The checksums are written once, before the scores that complete a run, so that a kill
at any moment leaves none that are wrong; runs that earlier versions have finished have none, and are read as they are.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from metacal.errors import StorageError
from metacal.files import read_bytes, read_json, write_json, write_text, write_whole

CHECKSUMS, SCORES = "checksums.json", "scores.json"
CHECKED = (
    *("spec.json", "environment.json", "splits.safetensors", "history.csv", "hyperparameters.json"),
    *("superclasses.json", "epochs/*.safetensors", "predictions/*.safetensors", "shift/*.json"),
)
"""What has a checksum, besides the scores."""
MADE_AGAIN = (SCORES, "hyperparameters.json", "predictions/val.safetensors", "predictions/test.safetensors")
"""What finishing a run writes, from its best checkpoint."""


class RunFiles:
    """Reads the files of one run by their names within its folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def is_complete(self) -> bool:
        """Whether its scores are there."""
        return (self.path / SCORES).exists()

    def seal(self, scores: str) -> None:
        """Complete the run: the checksums of all files, then its scores."""
        files = [file for pattern in CHECKED for file in sorted(self.path.glob(pattern))]
        checksums = {file.relative_to(self.path).as_posix(): digest(read_bytes(file)) for file in files}
        write_json(self.path / CHECKSUMS, {**checksums, SCORES: digest(scores.encode())})
        write_text(self.path / SCORES, scores)

    def replace(self, name: str, text: str) -> None:
        """Write a file of a complete run; a kill in between leaves it without a checksum, never with a wrong one."""
        others = {file: value for file, value in self._checksums().items() if file != name}
        if others:
            write_json(self.path / CHECKSUMS, others)
        write_text(self.path / name, text)
        if others:
            write_json(self.path / CHECKSUMS, {**others, name: digest(text.encode())})

    def read(self, name: str) -> bytes:
        """What is in a file.

        Raises:
            StorageError: it is missing, or is not what was written.
        """
        data, expected = read_bytes(self.path / name), self._checksums().get(name)
        if expected is not None and expected != digest(data):
            raise self.damaged(name, "its contents do not have the checksum they were written with")
        return data

    def read_value(self, name: str) -> Any:
        """The value in a JSON file."""
        data = self.read(name)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.damaged(name, f"it must hold JSON ({error})") from None

    def read_object(self, name: str) -> dict[str, Any]:
        """The object in a JSON file."""
        found = self.read_value(name)
        if not isinstance(found, dict):
            raise self.damaged(name, "it must hold a JSON object")
        return found

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors in a file."""
        data = self.read(name)
        try:
            return dict(safetensors.torch.load(data))
        except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise self.damaged(name, str(error)) from None

    def damaged_files(self) -> Iterator[str]:
        """What is wrong with each file that is there and is not what was written."""
        for name in self._checksums():
            if (self.path / name).exists():
                try:
                    self.read(name)
                except StorageError as error:
                    yield str(error)

    def damaged(self, name: str, reason: str) -> StorageError:
        """The error that names a damaged file and the way out."""
        if name in MADE_AGAIN:
            again = f"metacal train --run-dir {shlex.quote(str(self.path))} --resume"
            fix = f"Delete {self.path / SCORES} and finish the run again: {again}"
        elif name.startswith("shift/"):
            fix = "Delete it and measure the shift again."
        elif name == "history.csv" and not self.is_complete:
            fix = "Delete it: the run continues, with the history from now on."
        else:
            fix = "Copy it again from where the run was made, or run it again in another folder."
        return StorageError(f"{self.path / name} is damaged: {reason.rstrip('.')}. {fix}")

    def _checksums(self) -> dict[str, str]:
        """Of a complete run, by file."""
        path = self.path / CHECKSUMS
        if not self.is_complete or not path.exists():
            return {}
        found = read_json(path)
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise StorageError(f"{path} is damaged: it must hold a checksum for each file. Without it none is checked.")
        return found


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Replace a file of tensors."""
    data = safetensors.torch.save(
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata
    )
    write_whole(path, lambda file: file.write(data))
