"""Probabilities to a file, batch by batch, in a form that `read_predictions` reads back."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from metacal.errors import InvalidValueError

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
    numbered from 0). An NPZ has arrays ``probs``, ``targets`` and ``class_names``. The file appears under its name
    only when it is whole.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    check_writable(path)
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        try:
            rows = (_write_npz if path.suffix.lower() == ".npz" else _write_table)(
                unfinished, path.suffix.lower(), batches, list(class_names)
            )
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidValueError(f"`--out` must name a file that can be written, got {path}: {error}.") from None
    return rows


def _write_npz(path: Path, suffix: str, batches: Iterable[tuple[Tensor, Tensor | None]], class_names: list[str]) -> int:
    pairs = list(batches)
    arrays: dict[str, Any] = {
        "probs": np.concatenate([probs.numpy() for probs, _ in pairs]),
        "class_names": np.array(class_names),
    }
    if pairs[0][1] is not None:
        arrays["targets"] = np.concatenate([targets.numpy() for _, targets in pairs if targets is not None])
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return len(arrays["probs"])


def _write_table(
    path: Path, suffix: str, batches: Iterable[tuple[Tensor, Tensor | None]], class_names: list[str]
) -> int:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.ipc
    import pyarrow.parquet

    is_numbered = class_names == [str(number) for number in range(len(class_names))]
    writer, rows = None, 0
    for probs, targets in batches:
        columns = {
            f"prob_{name}": column.numpy() for name, column in zip(class_names, probs.t().contiguous(), strict=True)
        }
        if targets is not None:
            numbers = targets.numpy()
            columns["target"] = numbers if is_numbered else pa.array(class_names).take(pa.array(numbers))
        table = pa.table(columns)
        if writer is None:
            open_writer = {".parquet": pa.parquet.ParquetWriter, ".csv": pa.csv.CSVWriter}.get(suffix, pa.ipc.new_file)
            writer = open_writer(str(path), table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer is not None:
        writer.close()
    return rows
