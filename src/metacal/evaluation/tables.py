"""A prediction file as a table: named columns that are read in batches, whatever the format.

`open_table` picks the reader by the file's extension: arrays and tensors are read here, the rest in ``arrow_tables``
and ``json_tables``. A reader knows nothing of predictions: ``columns`` decides which column holds what.
"""

import sys
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError, needs

FORMATS = ".csv, .tsv, .parquet, .arrow, .feather, .ipc, .npz, .npy, .json, .jsonl, .ndjson, .pt, .safetensors, .eval"
TARGET_ENDINGS = ("targets", "target", "labels", "label", "ground_truth", "y")
SCORE_ENDINGS = ("probs", "probabilities", "predictions", "logits")
DROP = "fix or drop the row"
Item = TypeVar("Item")


@dataclass(frozen=True)
class Strings:
    """A column of text: each row's index in a list of distinct values; -1 if missing."""

    codes: NDArray[np.int64]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> "Strings":
        return Strings(self.codes[rows], self.values)


Column = NDArray[Any] | Strings
"""Numbers ``(m,)``, a list of numbers for each row ``(m, K)``, or text. A missing number is NaN."""


def join_columns(parts: Sequence[Column]) -> Column:
    """Join the batches of a column; numbers become text if another batch has text."""
    if not any(isinstance(part, Strings) for part in parts):
        return np.concatenate([part for part in parts if not isinstance(part, Strings)])
    places: dict[str, int] = {}
    codes = []
    for part in parts:
        text = part if isinstance(part, Strings) else as_text(part)
        known = np.array([places.setdefault(value, len(places)) for value in text.values] + [-1], dtype=np.int64)
        codes.append(known[text.codes])
    return Strings(np.concatenate(codes), tuple(places))


def as_text(numbers: NDArray[Any]) -> Strings:
    """Return numbers or booleans as text; a missing one has no value."""
    is_missing = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(len(numbers), dtype=bool)
    values, codes = np.unique(np.where(is_missing, numbers.dtype.type(0), numbers), return_inverse=True)
    texts = tuple(f"{value:.12g}" if numbers.dtype.kind == "f" else str(value) for value in values.tolist())
    return Strings(np.where(is_missing, -1, codes.reshape(-1)).astype(np.int64), texts)


class Table:
    """The interface of a format's reader.

    Attributes:
        names: columns in the order of the file; a field of a nested column is ``column.field``.
        class_names: of the classes, if the file holds them apart from its columns.
        target: the column of the targets, if they came from a file of their own.
        notes: how the rows were made, where they are not those of the file.
        arrays: those saved by name, whose shapes say what they are; none if the file has rows.
    """

    names: Sequence[str]
    class_names: Sequence[str] | None = None
    target: str | None = None
    notes: Sequence[str] = ()
    arrays: Mapping[str, Column] = {}

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield some columns in batches of rows; ``text`` keeps untyped values as text."""
        raise NotImplementedError

    def has_pixels(self, score: str, target: str) -> bool:
        """Whether two arrays hold scores and targets for many positions of each sample, by their shapes."""
        scores, targets = self.arrays.get(score), self.arrays.get(target)
        if not isinstance(scores, np.ndarray) or not isinstance(targets, np.ndarray) or targets.ndim < 2:
            return False
        if scores.shape == targets.shape:
            return targets.ndim > 2
        return targets.shape in (scores.shape[:1] + scores.shape[2:], scores.shape[:-1])

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        return f"row {row + 1}"


class BadRow(Exception):  # noqa: N818 (not an error of ours: it becomes an InvalidFileError where the file is known)
    """An error about a row, counted from 0 within its batch."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row, self.problem = row, problem


def open_table(path: Path, target: str | None = None, file_format: str = "auto") -> Table:
    """Open a file with the reader for its extension; packages of other readers are not loaded.

    ``.csv.gz``, ``.tsv.gz`` and ``.jsonl.gz`` are unpacked on the way. ``target`` names the file that holds the targets
    of a ``.npy`` file, by default found beside it, or of a pipeline's output. ``file_format`` is that of JSON.
    """
    if not path.exists():
        raise InvalidFileError(f"{path}: no such file; check the path.")
    if path.is_dir():
        raise InvalidFileError(f"{path}: is a folder; name a file in it.")
    suffix = path.suffix.lower()
    if suffix == ".gz" and (packed := path.with_suffix("").suffix.lower()) in (".csv", ".tsv", ".jsonl", ".ndjson"):
        suffix = packed
    with readable(path):
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
        if not path.stat().st_size:
            raise InvalidFileError(f"{path}: is empty (0 bytes); write the predictions again.")
        if start.startswith(b"version https://git-lfs"):
            raise InvalidFileError(f"{path}: is a pointer of Git LFS, not the file; run `git lfs pull`.")
        if start.startswith((b"<!doctype html", b"<html")):
            raise InvalidFileError(f"{path}: is a web page, not the file; download the file itself.")
        if suffix == ".npz":
            return _open_npz(path)
        if suffix == ".npy":
            return _open_npy(path, target)
        if suffix in (".pt", ".pth", ".safetensors"):
            return _open_tensors(path)
        if suffix in (".json", ".eval", ".jsonl", ".ndjson"):
            from metacal.evaluation.json_tables import open_json

            return open_json(path, target, file_format)
        if suffix in (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".ipc"):
            with needs("cli"):
                from metacal.evaluation.arrow_tables import open_arrow_table
            return open_arrow_table(path, suffix)
    raise InvalidFileError(f"{path}: unknown extension {suffix or '(none)'}; save as one of {FORMATS}.")


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield items while a second thread fetches the next one; stopping early stops the thread.

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
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_numbers(name: str, column: Column) -> NDArray[Any]:
    """Return the numbers of a score column, parsed if they are text; BadRow names a value that is no number."""
    if not isinstance(column, Strings):
        if column.dtype.kind not in "fiub":
            raise BadRow(0, f"column {name} holds {column.dtype}, not numbers; write it as numbers")
        return column
    known = np.array([float(value) if is_number(value) else np.nan for value in column.values] + [np.nan])
    is_bad = np.array([not is_number(value) for value in column.values] + [True])[column.codes]
    if not is_bad.any():
        return known[column.codes]
    row = int(is_bad.argmax())
    if column.codes[row] < 0:
        raise BadRow(row, f"column {name} holds nothing, not a number; {DROP}")
    text, fix = column.values[column.codes[row]], DROP
    if text.strip().startswith(("[", "(", "{")):
        fix = "a list written as text; save it as .parquet or .jsonl, or a column for each class"
    elif is_number(text.strip().rstrip("%")):
        fix = "write it without the % sign"
    elif is_number(text.replace(",", ".")):
        fix = "write it with a decimal point"
    raise BadRow(row, f"column {name} holds {text!r}, not a number; {fix}")


def to_numbers(column: Column) -> NDArray[Any] | None:
    """Return the numbers of a purely numeric column, parsed if they are text; None for others."""
    if not isinstance(column, Strings):
        return column if column.ndim == 1 and len(column) and column.dtype.kind in "fiu" else None
    if not len(column) or column.codes.min() < 0 or not all(map(is_number, column.values)):
        return None
    return np.array([float(value) for value in column.values])[column.codes]


def first_line(error: BaseException) -> str:
    """Return the first line of a library's message; its type if there is none."""
    return next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn unexpected errors during reading into an InvalidFileError."""
    try:
        yield
    except UnicodeDecodeError:
        raise InvalidFileError(f"{path}: is not text in UTF-8; write it again as such.") from None
    except UnicodeEncodeError:
        raise InvalidFileError(f"{path}: the name of the file is not text in UTF-8; rename it.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InvalidFileError(f"{path}: cannot be read ({reason}); check or write it again.") from None


class ArrayTable(Table):
    """Columns in memory, checked for equal length when they are read."""

    def __init__(self, path: Path, columns: Mapping[str, Column], notes: Sequence[str] = ()) -> None:
        self._path, self.columns = path, columns
        self.names, self.notes = list(columns), notes

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield slices of the columns."""
        lengths = {name: len(self.columns[name]) for name in columns}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            shapes: list[tuple[int, ...]] = [getattr(self.columns[name], "shape", ()) for name in columns]
            is_turned = any(len(shape) == 2 and shape[1] in lengths.values() for shape in shapes)
            fix = "transpose the scores to (n, K)" if is_turned else "save them together again"
            raise InvalidFileError(f"{self._path}: arrays must have one length, but {found}; {fix}.")
        for first in range(0, max(lengths.values()), rows):
            yield {name: _as_column(name, self.columns[name][first : first + rows]) for name in columns}


def named_arrays(path: Path, arrays: Mapping[str, Column], class_names: Iterable[object] | None = None) -> ArrayTable:
    """Return a table of named arrays."""
    table = ArrayTable(path, arrays)
    table.arrays, table.class_names = arrays, None if class_names is None else [str(name) for name in class_names]
    return table


def _as_column(name: str, array: Column) -> Column:
    if isinstance(array, Strings):
        return array
    if array.dtype.kind not in "US":
        return np.asarray(array)
    if array.ndim > 1:
        raise BadRow(0, f"{name} has {array[0].size} texts a row, not one; save one a row")
    values, codes = np.unique(array.astype(str), return_inverse=True)
    return Strings(codes.astype(np.int64).reshape(-1), tuple(values.tolist()))


def _open_npz(path: Path) -> Table:
    # Opened here: NumPy leaves a file open whose archive it cannot read.
    with path.open("rb") as file, _written_by_numpy(path, "NPZ archive", "np.savez"):
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: _plain(archive[name]) for name in archive.files}
        names = arrays.pop("class_names", None)
        return named_arrays(
            path, {name: each for name, each in arrays.items() if each.ndim}, None if names is None else names.flat
        )


def _open_npy(path: Path, target: str | None) -> Table:
    """Open scores and targets from two memory-mapped files: ``x_targets.npy`` (or ``_labels``, ``_y``, ...).

    The second is beside the first, ``x_probs.npy`` say, or named by ``target``.
    """
    arrays, partner = {path.stem: _map(path)}, None
    if target is not None:
        named = [file for file in (Path(target), path.parent / target) if file.suffix.lower() == ".npy"]
        partner = next((file for file in named if file.is_file()), None)
        if partner is None:
            fix = "name a .npy file with `target` (--target)"
            raise InvalidFileError(f"{path}: no such file of targets: {target}; {fix}.")
    else:
        endings = [ending for ending in SCORE_ENDINGS if path.stem == ending or path.stem.endswith(f"_{ending}")]
        stem = path.stem.removesuffix(endings[0]) if endings else f"{path.stem}_"
        beside = [path.with_name(f"{stem}{ending}.npy") for ending in TARGET_ENDINGS]
        partner = next((file for file in beside if file.is_file()), None)
    name = None
    if partner is not None:
        name = TARGET_ENDINGS[0] if partner.stem in arrays else partner.stem
        arrays[name] = _map(partner)
    table = named_arrays(path, arrays)
    table.target = name
    return table


def _map(path: Path) -> NDArray[Any]:
    with _written_by_numpy(path, "NPY file", "np.save"):
        array = _plain(np.load(path, allow_pickle=False, mmap_mode="r"))
    if not array.ndim:
        raise InvalidFileError(f"{path}: must have a row for each sample, got a single value; save an array of them.")
    return array


@contextmanager
def _written_by_numpy(path: Path, what: str, writer: str) -> Iterator[None]:
    """Turn NumPy's many errors for invalid files into one sentence."""
    try:
        yield
    except OSError:
        raise  # no permission, say: not the file's fault
    except Exception as error:
        with path.open("rb") as file:
            is_pickle = file.read(1) == b"\x80" or "Object arrays" in str(error)
        if is_pickle:
            problem = "holds pickled objects, which could run code when opened: refused; save plain arrays"
        elif isinstance(error, MemoryError):
            problem = f"claims arrays that do not fit in memory ({first_line(error)}); write it again"
        else:  # NumPy takes any bytes for a pickle
            problem = (
                f"is not a whole {what}{'' if 'pickle' in str(error) else f' ({first_line(error)})'}; write it again"
            )
        raise InvalidFileError(f"{path}: {problem} with {writer}.") from None


def _open_tensors(path: Path) -> Table:
    """Tensors by name: a dictionary that ``torch.save`` wrote, or safetensors. Nothing else is unpickled."""
    writer = "torch.save({'logits': ..., 'targets': ...}, path)"
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            import torch

            if zipfile.is_zipfile(path):  # torch compresses nothing, and reserves what a member claims
                with zipfile.ZipFile(path) as archive:
                    claimed = sum(member.file_size for member in archive.infolist())
                if claimed > path.stat().st_size:
                    raise ValueError("it claims more bytes than it has")
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
    return named_arrays(path, arrays)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """``(n, 1)`` -> ``(n,)``; values without bytes, which may claim any number of rows, and broken text are refused."""
    if not array.dtype.itemsize:
        raise ValueError(f"its values of type {array.dtype} have no bytes")
    if array.dtype.kind == "U":
        letters = np.ascontiguousarray(array.astype(str)).view(np.uint32)
        if letters.max(initial=0) > sys.maxunicode:
            raise ValueError("its text is not Unicode")
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
