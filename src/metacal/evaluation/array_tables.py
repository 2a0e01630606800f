"""NPZ archives and NPY files as tables. Pickled objects are refused: opening them could run code."""

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError
from metacal.evaluation.tables import Column, Strings

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
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: _squeezed(archive[name]) for name in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, KeyError, TypeError) as error:
        raise InvalidFileError(f"{path}: {_complaint(path, error, 'NPZ archive', 'np.savez')}") from None
    names = arrays.pop(CLASS_NAMES_KEY, None)
    return ArrayTable(
        path,
        {name: array for name, array in arrays.items() if array.ndim},
        None if names is None else [str(name) for name in names.reshape(-1)],
    )


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
    try:
        return _squeezed(np.load(path, allow_pickle=False, mmap_mode="r"))
    except (ValueError, EOFError) as error:
        raise InvalidFileError(f"{path}: {_complaint(path, error, 'NPY file', 'np.save')}") from None


def _complaint(path: Path, error: Exception, what: str, writer: str) -> str:
    with path.open("rb") as file:
        is_pickle = file.read(1) == b"\x80"
    if is_pickle or "Object arrays" in str(error):
        return f"holds pickled objects, which could run code when opened: refused; save plain arrays with {writer}."
    reason = "" if "pickle" in str(error) else f" ({str(error).splitlines()[0]})"  # NumPy takes any bytes for a pickle
    return f"is not a whole {what}{reason}; write it again with {writer}."


def _squeezed(array: NDArray[Any]) -> NDArray[Any]:
    """``(n, 1)`` -> ``(n,)``."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _column(array: NDArray[Any]) -> Column:
    if array.dtype.kind not in "US":
        return np.asarray(array)
    values, codes = np.unique(array.astype(str), return_inverse=True)
    return Strings(codes.astype(np.int64).reshape(-1), tuple(values.tolist()))
