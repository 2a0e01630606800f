"""Probabilities to a file, batch by batch, in a form that `read_predictions` reads back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from metacal.errors import InvalidValueError, needs
from metacal.evaluation.tables import is_number
from metacal.files import write_whole

SUFFIXES = (".parquet", ".arrow", ".feather", ".csv", ".npz")


def check_writable(path: Path) -> None:
    """Raise unless the extension is known and the folder is there: before any work is done.

    Raises:
        InvalidValueError: the message names the path and the way out.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidValueError(f"`--out` must end in one of {', '.join(SUFFIXES)}, got {path}.")
    if not path.parent.is_dir():
        raise InvalidValueError(f"`--out` must name a file in a folder that exists, got {path}.")


def write_predictions(path: Path, batches: Iterable[tuple[Tensor, Tensor | None]], class_names: Sequence[str]) -> int:
    """Write probabilities ``(m, K)`` and, where there are any, targets; the number of rows.

    Columns are ``prob_NAME`` for each class and ``target``, which holds class names (numbers where the classes are
    numbered from 0, and in a CSV where a spreadsheet would take a name for a formula). An NPZ has arrays ``probs``,
    ``targets`` and ``class_names``. The file appears under its name only when it is whole (see `write_whole`).

    Raises:
        InvalidValueError: the path is not one to write to, or a CSV would not be read back as it was written.
        StorageError: the file cannot be written.
    """
    check_writable(path)
    suffix, rows = path.suffix.lower(), 0

    def counted() -> Iterator[tuple[Tensor, Tensor | None]]:
        nonlocal rows
        for probs, targets in batches:
            rows += len(probs)
            yield probs, targets

    def write(file: IO[bytes]) -> None:
        if suffix == ".npz":
            _write_npz(file, counted(), class_names)
        else:
            _write_table(file, suffix, counted(), list(class_names))

    write_whole(path, write)
    return rows


def is_formula(name: str) -> bool:
    """Whether a spreadsheet would run a cell of this text.

    Examples:
        >>> [is_formula(name) for name in ("=1+1", "@SUM(A1)", "-1", "cat")]
        [True, True, False, False]
    """
    return name.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and not is_number(name)


def _write_npz(file: IO[bytes], batches: Iterable[tuple[Tensor, Tensor | None]], class_names: Sequence[str]) -> None:
    pairs = list(batches)
    arrays: dict[str, Any] = {
        "probs": np.concatenate([probs.numpy() for probs, _ in pairs]),
        "class_names": np.array(class_names),
    }
    if pairs[0][1] is not None:
        arrays["targets"] = np.concatenate([targets.numpy() for _, targets in pairs if targets is not None])
    np.savez_compressed(file, **arrays)


def _write_table(
    file: IO[bytes], suffix: str, batches: Iterable[tuple[Tensor, Tensor | None]], class_names: list[str]
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
    open_writer = {".parquet": pa.parquet.ParquetWriter, ".csv": pa.csv.CSVWriter}.get(suffix, pa.ipc.new_file)
    writer = None
    with ExitStack() as opened:
        for probs, targets in batches:
            columns = {
                f"prob_{name}": column.numpy() for name, column in zip(class_names, probs.t().contiguous(), strict=True)
            }
            if targets is not None:
                numbers = targets.numpy()
                columns["target"] = numbers if is_numbered else pa.array(class_names).take(pa.array(numbers))
            table = pa.table(columns)
            if writer is None:
                writer = opened.enter_context(open_writer(file, table.schema))
            writer.write_table(table)
