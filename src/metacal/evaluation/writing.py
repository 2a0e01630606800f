"""Writes probabilities to a file in batches, in a form that `read_predictions` reads back."""

import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from metacal.errors import InvalidValueError, MetacalWarning, needs
from metacal.evaluation.tables import is_number
from metacal.files import write_whole

SUFFIXES = (".parquet", ".arrow", ".feather", ".csv", ".jsonl", ".npz")
Rows = tuple[Tensor, Tensor | None]
"""Probabilities ``(m, K)`` and, where there are any, targets."""

Others = Callable[[int], Any]
"""What returns so many rows more of other columns (see `other_columns`)."""


def check_writable(path: Path) -> None:
    """Raise unless the extension is known and the folder exists, before any work is done.

    Raises:
        InvalidValueError: the message names the path and the way out.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidValueError(f"`--out` must end in one of {', '.join(SUFFIXES)}, got {path}.")
    if not path.parent.is_dir():
        raise InvalidValueError(f"`--out` must name a file in a folder that exists, got {path}.")


def write_predictions(
    path: Path,
    batches: Iterable[Rows],
    class_names: Sequence[str],
    others: Others | None = None,
    target: str | None = None,
) -> int:
    """Write probabilities, targets and other columns; return the number of rows.

    Columns are the others, ``prob_NAME`` for each class and ``target``, which holds class names (numbers where the
    classes are numbered from 0, and in a CSV where a spreadsheet would take a name for a formula). An NPZ has arrays
    ``probs``, ``targets`` and ``class_names``, and the others. A warning names columns that the format cannot hold.
    Where another column is called ``target``, it stays, and the target is called ``target`` of the arguments.
    The file appears under its name only when it is whole (see `write_whole`).

    Raises:
        InvalidValueError: the path is not one to write to, or a CSV would not be read back as it was written.
        StorageError: the file cannot be written.
    """
    check_writable(path)
    suffix, rows = path.suffix.lower(), 0

    def counted() -> Iterator[Rows]:
        nonlocal rows
        for probs, targets in batches:
            rows += len(probs)
            yield probs, targets

    def write(file: IO[bytes]) -> None:
        if suffix == ".npz":
            _write_npz(file, counted(), class_names, others)
        else:
            _write_table(file, suffix, counted(), list(class_names), others, target)

    write_whole(path, write)
    return rows


def is_formula(name: str) -> bool:
    """Whether a spreadsheet would run a cell with this text.

    Examples:
        >>> [is_formula(name) for name in ("=1+1", "@SUM(A1)", "-1", "cat")]
        [True, True, False, False]
    """
    return name.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and not is_number(name)


def _write_npz(file: IO[bytes], batches: Iterable[Rows], class_names: Sequence[str], others: Others | None) -> None:
    pairs = list(batches)
    arrays: dict[str, Any] = {
        "probs": np.concatenate([probs.numpy() for probs, _ in pairs]),
        "class_names": np.array(class_names),
    }
    if pairs[0][1] is not None:
        arrays["targets"] = np.concatenate([targets.numpy() for _, targets in pairs if targets is not None])
    if others is not None:
        from metacal.evaluation.other_columns import to_numpy

        kept = others(len(arrays["probs"]))
        found = {name: to_numpy(kept.column(name).combine_chunks()) for name in kept.column_names}
        _warn_of([name for name, array in found.items() if array is None or name in arrays], ".npz")
        arrays = {name: array for name, array in found.items() if array is not None} | arrays
    # Not `np.savez_compressed`, whose own arguments (`file`, `allow_pickle`) no array may be called.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _warn_of(names: Sequence[str], suffix: str) -> None:
    if names:
        fix = f"{suffix} cannot hold {', '.join(names)}: they are left out; write .parquet."
        warnings.warn(fix, MetacalWarning, stacklevel=2)


class _JSONLines:
    """A JSON lines writer with Arrow's interface."""

    def __init__(self, file: IO[bytes], schema: Any) -> None:
        self._file = file

    def write_table(self, table: Any) -> None:
        for row in table.to_pylist():
            self._file.write(json.dumps(row, default=str).encode() + b"\n")

    def __enter__(self) -> "_JSONLines":
        return self

    def __exit__(self, *error: object) -> None:
        pass


def _write_table(
    file: IO[bytes],
    suffix: str,
    batches: Iterable[Rows],
    class_names: list[str],
    others: Others | None,
    target: str | None,
) -> None:
    with needs("cli"):
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet

    is_numbered = class_names == [str(number) for number in range(len(class_names))]
    if suffix == ".csv" and any(map(is_formula, class_names)):
        is_numbered = True
        if any(map(is_number, class_names)):
            raise InvalidValueError(
                "`--out` must not be a CSV: a spreadsheet would take a class name for a formula, and numbers in its "
                "place would be taken for other classes; write .parquet."
            )
    # The header's names and the target's cells are read without spaces around them.
    is_kept = re.compile(r"[^\n\r]*\S" if is_numbered else r"\S([^\n\r]*\S)?").fullmatch
    if suffix == ".csv" and not all(map(is_kept, class_names)):
        raise InvalidValueError(
            "`--out` must not be a CSV: a class name has a line break, or spaces at an end, which are not read back; "
            "write .parquet."
        )
    writers = {".parquet": pa.parquet.ParquetWriter, ".csv": pa.csv.CSVWriter, ".jsonl": _JSONLines}
    open_writer: Any = writers.get(suffix, pa.ipc.new_file)
    writer = None
    with ExitStack() as opened:
        for probs, targets in batches:
            columns = {} if others is None else _held(others(len(probs)), suffix, is_first=writer is None)
            place = target if target and "target" in columns else "target"
            named = zip(class_names, probs.t().contiguous(), strict=True)
            columns |= {f"prob_{name}": column.numpy() for name, column in named}
            if targets is not None:
                numbers = targets.numpy()
                columns[place] = numbers if is_numbered else pa.array(class_names).take(pa.array(numbers))
            table = pa.table(columns)
            if writer is None:
                writer = opened.enter_context(open_writer(file, table.schema))
            writer.write_table(table)


def _held(table: Any, suffix: str, is_first: bool) -> dict[str, Any]:
    """Return the columns that a text format can hold."""
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    dropped = [field.name for field in table.schema if suffix == ".csv" and not is_text(field.type)]
    if is_first:
        _warn_of(dropped, suffix)
    return {name: table.column(name) for name in table.column_names if name not in dropped}
