"""NPZ archives and NPY files as tables. Pickled objects are refused: opening them could run code."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError
from metacal.evaluation.tables import Column, Strings, first_line

CLASS_NAMES_KEY = "class_names"
TARGET_ENDINGS = ("targets", "target", "labels", "label", "ground_truth", "y")
SCORE_ENDINGS = ("probs", "probabilities", "predictions", "logits")


class ArrayTable:
    """Arrays of equal length, by name."""

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]], class_names: Sequence[str] | None = None) -> None:
        self._path = path
        self._arrays = arrays
        self.names = list(arrays)
        self.class_names = class_names

    def is_matrix(self, name: str) -> bool:
        """Whether an array has a row of numbers for each sample, and not one value."""
        return self._arrays[name].ndim > 1

    def alike(self, name: str) -> list[str]:
        """Arrays of floats that have the shape of this one, which is among them."""
        shape = self._arrays[name].shape
        return [other for other, array in self._arrays.items() if array.shape == shape and array.dtype.kind == "f"]

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield slices of the arrays."""
        lengths = {name: len(self._arrays[name]) for name in columns}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InvalidFileError(f"{self._path}: arrays must have one length, but {found}; save them together again.")
        for first in range(0, max(lengths.values()), rows):
            yield {name: _column(self._arrays[name][first : first + rows]) for name in columns}


def open_npz(path: Path) -> ArrayTable:
    """Arrays of an archive: all of them are read into memory."""
    # Opened here: NumPy leaves a file open whose archive it cannot read.
    with path.open("rb") as file, _written_by_numpy(path, "NPZ archive", "np.savez"):
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: _plain(archive[name]) for name in archive.files}
        names = arrays.pop(CLASS_NAMES_KEY, None)
        class_names = None if names is None else [str(name) for name in names.reshape(-1)]
    return ArrayTable(path, {name: array for name, array in arrays.items() if array.ndim}, class_names)


def open_npy(path: Path, target: str | None = None) -> ArrayTable:
    """Scores from one file and targets from the one beside it, both mapped rather than read.

    The targets' file is ``target`` if it names one, else ``x_targets.npy`` (or ``_labels``, ``_ground_truth``, ...)
    for ``x_probs.npy``, and ``targets.npy`` (...) for ``probs.npy``.
    """
    arrays = {path.stem: _map(path)}
    partner = _partner(path, target)
    if partner is not None:
        arrays[TARGET_ENDINGS[0] if partner.stem in arrays else partner.stem] = _map(partner)
    return ArrayTable(path, arrays)


def _partner(path: Path, target: str | None) -> Path | None:
    if target is not None:
        for named in (Path(target), path.parent / target):
            if named.suffix.lower() == ".npy" and named.is_file():
                return named
        raise InvalidFileError(f"{path}: no such file of targets: {target}; name a .npy file with `target` (--target).")
    endings = [ending for ending in SCORE_ENDINGS if path.stem == ending or path.stem.endswith(f"_{ending}")]
    stem = path.stem.removesuffix(endings[0]) if endings else f"{path.stem}_"
    beside = [path.with_name(f"{stem}{ending}.npy") for ending in TARGET_ENDINGS]
    return next((file for file in beside if file.is_file()), None)


def _map(path: Path) -> NDArray[Any]:
    with _written_by_numpy(path, "NPY file", "np.save"):
        array = _plain(np.load(path, allow_pickle=False, mmap_mode="r"))
    if not array.ndim:
        raise InvalidFileError(f"{path}: must have a row for each sample, got a single value; save an array of them.")
    return array


@contextmanager
def _written_by_numpy(path: Path, what: str, writer: str) -> Iterator[None]:
    """Turn whatever NumPy raises for bytes that it has not written into one sentence; it raises a dozen kinds."""
    try:
        yield
    except OSError:
        raise  # no permission, say: not the file's fault
    except Exception as error:
        raise InvalidFileError(f"{path}: {_complaint(path, error, what, writer)}") from None


def _complaint(path: Path, error: Exception, what: str, writer: str) -> str:
    with path.open("rb") as file:
        is_pickle = file.read(1) == b"\x80"
    if is_pickle or "Object arrays" in str(error):
        return f"holds pickled objects, which could run code when opened: refused; save plain arrays with {writer}."
    if isinstance(error, MemoryError):
        return f"claims arrays that do not fit in memory ({first_line(error)}); write it again with {writer}."
    reason = "" if "pickle" in str(error) else f" ({first_line(error)})"  # NumPy takes any bytes for a pickle
    return f"is not a whole {what}{reason}; write it again with {writer}."


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """``(n, 1)`` -> ``(n,)``.

    Values without any bytes are refused: a small file could claim any number of them. So is text with numbers that no
    character has: Python's own text functions fail on it.
    """
    if not array.dtype.itemsize:
        raise ValueError(f"its values of type {array.dtype} have no bytes")
    if (
        array.dtype.kind == "U"
        and np.ascontiguousarray(array.astype(str)).view(np.uint32).max(initial=0) > sys.maxunicode
    ):
        raise ValueError("its text is not Unicode")
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _column(array: NDArray[Any]) -> Column:
    if array.dtype.kind not in "US":
        return np.asarray(array)
    values, codes = np.unique(array.astype(str), return_inverse=True)
    return Strings(codes.astype(np.int64).reshape(-1), tuple(values.tolist()))
