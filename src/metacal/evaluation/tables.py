"""A prediction file as a table: named columns that are read in batches, whatever the format.

`open_table` picks the reader by the file's extension: arrays and tensors are read here, all else by ``arrow_tables``,
``json_lines`` and ``json_tables``. A reader knows nothing of predictions: which columns hold what is decided in
``columns``, and what the values must be in ``prediction_file``.
"""

import sys
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError, needs

FORMATS = ".csv, .tsv, .parquet, .arrow, .feather, .ipc, .npz, .npy, .json, .jsonl, .ndjson, .pt, .safetensors, .eval"
CLASS_NAMES_KEY = "class_names"
TARGET_ENDINGS = ("targets", "target", "labels", "label", "ground_truth", "y")
SCORE_ENDINGS = ("probs", "probabilities", "predictions", "logits")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Strings:
    """A column of text: each row's number in a list of distinct values; -1 where there is none."""

    codes: NDArray[np.int64]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> "Strings":
        return Strings(self.codes[rows], self.values)


Column = NDArray[Any] | Strings
"""Numbers ``(m,)``, a list of numbers for each row ``(m, K)``, or text. A missing number is NaN."""


class Table(Protocol):
    """What a reader of one format offers."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns, in the order of the file; a field of a nested column is ``column.field``."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """Names of the classes, if the file holds them apart from its columns."""

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield some columns, so many rows at a time; ``text`` stays text where the format does not say what it is."""


class BadRow(Exception):  # noqa: N818 (not an error of ours: it becomes an InvalidFileError where the file is known)
    """What is wrong with a row, counted from 0 within its batch."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem


def open_table(path: Path, target: str | None = None, file_format: str = "auto") -> Table:
    """Open a file with the reader that its extension asks for; packages that the others need are never loaded.

    ``.csv.gz``, ``.tsv.gz`` and ``.jsonl.gz`` are unpacked on the way. ``target`` names the file that holds the targets
    of a ``.npy`` file, by default found beside it, or of a pipeline's output. ``file_format`` is that of JSON.
    """
    if not path.exists():
        raise InvalidFileError(f"{path}: no such file; check the path.")
    if path.is_dir():
        raise InvalidFileError(f"{path}: is a folder; name a file in it.")
    suffix = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    with readable(path):
        if not path.stat().st_size:
            raise InvalidFileError(f"{path}: is empty (0 bytes); write the predictions again.")
        _check_start(path)
        if suffix in (".npz", ".npy"):
            return open_npz(path) if suffix == ".npz" else open_npy(path, target)
        if suffix in (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"):
            from metacal.evaluation.json_lines import open_json_lines

            return open_json_lines(path, target, file_format)
        if suffix in (".json", ".eval"):
            from metacal.evaluation.json_tables import open_json

            return open_json(path, target, file_format)
        if suffix in (".pt", ".pth", ".safetensors"):
            return open_tensors(path)
        if suffix in (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc"):
            with needs("cli"):
                from metacal.evaluation.arrow_tables import open_arrow_table
            return open_arrow_table(path, suffix.removesuffix(".gz"))
    raise InvalidFileError(f"{path}: unknown extension {suffix or '(none)'}; save as one of {FORMATS}.")


def _check_start(path: Path) -> None:
    """Raise if the file is what a download or a clone leaves in the place of another."""
    with path.open("rb") as file:
        start = file.read(64).lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        raise InvalidFileError(f"{path}: is a pointer of Git LFS, not the file; run `git lfs pull`.")
    if start.startswith((b"<!doctype html", b"<html")):
        raise InvalidFileError(f"{path}: is a web page, not the file; download the file itself.")


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield items while a second thread fetches the next one; whoever stops early stops the thread.

    Examples:
        >>> list(read_ahead("abc"))
        ['a', 'b', 'c']
    """
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "metacal-read-ahead") as reader:
        coming = reader.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = reader.submit(next, source, end)
            yield item  # type: ignore[misc]


def is_number(text: str) -> bool:
    """Whether a text is a number: of a cell, or of a header that is not there."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def first_line(error: BaseException) -> str:
    """The first line of what a library says, for a sentence of our own; its type if it says nothing."""
    return next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read, and is not of our own making, into an InvalidFileError."""
    try:
        yield
    except UnicodeDecodeError:
        raise InvalidFileError(f"{path}: is not text in UTF-8; write it again as such.") from None
    except UnicodeEncodeError:
        raise InvalidFileError(f"{path}: the name of the file is not text in UTF-8; rename it.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InvalidFileError(f"{path}: cannot be read ({reason}); check or write it again.") from None


class ArrayTable:
    """Arrays of equal length, by name."""

    def __init__(self, path: Path, arrays: Mapping[str, Column], class_names: Sequence[str] | None = None) -> None:
        self.notes: list[str] = []
        self.is_records = False  # columns of rows, rather than arrays that were saved by name
        self._path = path
        self._arrays = arrays
        self.names = list(arrays)
        self.class_names = class_names

    def is_matrix(self, name: str) -> bool:
        """Whether an array has a row of numbers for each sample, and not one value."""
        array = self._arrays[name]
        return not isinstance(array, Strings) and array.ndim > 1

    def array(self, name: str) -> Column:
        """All rows of an array."""
        return self._arrays[name]

    def has_pixels(self, score: str, target: str) -> bool:
        """Whether two arrays have scores and targets for many places of each sample, by their shapes."""
        scores, targets = self._arrays[score], self._arrays[target]
        if isinstance(scores, Strings) or isinstance(targets, Strings) or targets.ndim < 2:
            return False
        if scores.shape == targets.shape:
            return targets.ndim > 2
        return targets.shape in (scores.shape[:1] + scores.shape[2:], scores.shape[:-1])

    def alike(self, name: str) -> list[str]:
        """Arrays of floats that have the shape of this one, which is among them."""
        floats = {
            other: array.shape
            for other, array in self._arrays.items()
            if not isinstance(array, Strings) and array.dtype.kind == "f"
        }
        return [other for other, shape in floats.items() if shape == floats.get(name)]

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield slices of the arrays."""
        lengths = {name: len(self._arrays[name]) for name in columns}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            shapes: list[tuple[int, ...]] = [getattr(self._arrays[name], "shape", ()) for name in columns]
            is_turned = any(len(shape) == 2 and shape[1] in lengths.values() for shape in shapes)
            fix = "transpose the scores to (n, K)" if is_turned else "save them together again"
            raise InvalidFileError(f"{self._path}: arrays must have one length, but {found}; {fix}.")
        for first in range(0, max(lengths.values()), rows):
            yield {name: _array_column(self._arrays[name][first : first + rows]) for name in columns}


def open_npz(path: Path) -> ArrayTable:
    """Arrays of an archive: all of them are read into memory."""
    # Opened here: NumPy leaves a file open whose archive it cannot read.
    with path.open("rb") as file, _written_by_numpy(path, "NPZ archive", "np.savez"):
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: _plain(archive[name]) for name in archive.files}
        names = arrays.pop(CLASS_NAMES_KEY, None)
        class_names = None if names is None else [str(name) for name in names.reshape(-1)]
    return ArrayTable(path, {name: array for name, array in arrays.items() if array.ndim}, class_names)


def open_tensors(path: Path) -> ArrayTable:
    """Tensors by name: a dictionary that ``torch.save`` wrote, or safetensors. Nothing else is unpickled."""
    writer = "torch.save({'logits': ..., 'targets': ...}, path)"
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            import torch

            found = torch.load(path, map_location="cpu", weights_only=True)
        if not hasattr(found, "items"):
            raise TypeError(f"it holds a single {type(found).__name__}")
        tensors = {str(name): value for name, value in found.items() if hasattr(value, "detach") and value.ndim}
        arrays = {
            name: _plain((value.float() if value.dtype.itemsize == 2 and value.is_floating_point() else value).numpy())
            for name, value in tensors.items()
        }
    except OSError:
        raise
    except Exception as error:
        reason = "" if "weights_only" in str(error).lower() else f" ({first_line(error)})"
        raise InvalidFileError(f"{path}: is not a dictionary of plain tensors{reason}; write {writer}.") from None
    if not arrays:
        raise InvalidFileError(f"{path}: holds no tensors by name; write {writer}.")
    return ArrayTable(path, arrays)


def open_npy(path: Path, target: str | None = None) -> ArrayTable:
    """Scores from one file and targets from another, both mapped rather than read.

    Beside ``x_probs.npy`` the targets are ``target``, or found in ``x_targets.npy`` (or ``_labels``, ``_y``, ...).
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


def _array_column(array: Column) -> Column:
    if isinstance(array, Strings):
        return array
    if array.dtype.kind not in "US":
        return np.asarray(array)
    values, codes = np.unique(array.astype(str), return_inverse=True)
    return Strings(codes.astype(np.int64).reshape(-1), tuple(values.tolist()))
