"""A prediction file as a table: named columns that are read in batches, whatever the format.

`open_table` picks the reader by the file's extension. A reader knows nothing of predictions: which columns hold
what is decided in ``columns``, and what the values must be in ``batches``.
"""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError, needs

BATCH_ELEMENTS = 2**21
"""Numbers read at once: 16 MB of float32."""

CHUNK_ELEMENTS = 2**18
"""Scores handled at once: they stay in cache between the passes over them."""

FORMATS = ".csv, .tsv, .parquet, .arrow, .feather, .ipc, .npz, .npy, .jsonl, .ndjson"


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


def open_table(path: Path, target: str | None = None) -> Table:
    """Open a file with the reader that its extension asks for.

    Args:
        path: a file in one of the formats; ``.csv.gz``, ``.tsv.gz`` and ``.jsonl.gz`` are unpacked on the way.
        target: of a ``.npy`` file, the file that holds the targets (or None: look for it beside).

    Raises:
        InvalidFileError: no such file, nothing in it, or an unknown extension.
    """
    if not path.exists():
        raise InvalidFileError(f"{path}: no such file; check the path.")
    if path.is_dir():
        raise InvalidFileError(f"{path}: is a folder; name a file in it.")
    suffix = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    with readable(path):
        if not path.stat().st_size:
            raise InvalidFileError(f"{path}: is empty (0 bytes); write the predictions again.")
        return _open(path, suffix, target)


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


def _open(path: Path, suffix: str, target: str | None) -> Table:
    """Import and call the reader: the libraries behind the others are never loaded."""
    if suffix in (".npz", ".npy"):
        from metacal.evaluation import array_tables

        return array_tables.open_npz(path) if suffix == ".npz" else array_tables.open_npy(path, target)
    if suffix in (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"):
        from metacal.evaluation.json_tables import JSONLinesTable

        return JSONLinesTable(path)
    if suffix in (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc"):
        with needs("cli"):
            from metacal.evaluation import arrow_tables
        return arrow_tables.open_arrow_table(path, suffix.removesuffix(".gz"))
    raise InvalidFileError(f"{path}: unknown extension {suffix or '(none)'}; save as one of {FORMATS}.")
