"""JSON lines as a table: rows are parsed one by one, and those of a log are handed to ``json_tables``."""

import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metacal.errors import InvalidFileError
from metacal.evaluation.tables import BadRow, Column, Strings, Table, first_line


def open_json_lines(path: Path, target: str | None, file_format: str) -> Table:
    """Rows that are read in batches; those of a log are converted, and kept in memory."""
    from metacal.evaluation.json_tables import convert_rows, read_targets, recognise

    first = next(read_lines(path), None)
    name = recognise(first) if file_format == "auto" else file_format
    if first is None or name == "table":
        return JSONLinesTable(path)
    targets = read_targets(path, target) if name == "pipeline" else None
    return convert_rows(path, list(read_lines(path)), name, targets)


def read_lines(path: Path) -> Iterator[Any]:
    """Parsed lines, blank ones left out."""
    row, is_zipped = 0, path.suffix.lower() == ".gz"
    with gzip.open(path, "rt", encoding="utf-8-sig") if is_zipped else path.open(encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                row += 1
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InvalidFileError(
                        f"{path}: row {row} is not JSON ({first_line(error)}); write one object a line."
                    ) from None


class JSONLinesTable:
    """Rows are parsed one by one: nothing is inferred from the first ones, and every message knows its row."""

    class_names = None

    def __init__(self, path: Path) -> None:
        self._path = path
        first = next(self._records(), None)
        if first is None:
            raise InvalidFileError(f"{path}: holds no rows; write the predictions again.")
        self.names = list(first)

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield columns of so many parsed lines."""
        records = self._records()
        while block := list(itertools.islice(records, rows)):
            yield {name: json_column(name, [record.get(name) for record in block]) for name in columns}

    def _records(self) -> Iterator[dict[str, Any]]:
        """Objects with the fields of nested ones lifted: ``{"probs": {"cat": 1}}`` -> ``{"probs.cat": 1}``."""
        for row, record in enumerate(read_lines(self._path), start=1):
            if not isinstance(record, dict):
                raise InvalidFileError(f"{self._path}: row {row} is not a JSON object; write one object a line.")
            yield lift_fields(record)


def lift_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Fields of objects inside as fields of their own: ``{"probs": {"cat": 1}}`` -> ``{"probs.cat": 1}``."""
    flat = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{field}": inner for field, inner in value.items()})
        else:
            flat[name] = value
    return flat


def json_column(name: str, values: list[Any]) -> Column:
    """Parsed values as a column; BadRow names one that does not fit the others."""
    if any(isinstance(value, str) for value in values):
        return _json_strings(name, values)
    if all(isinstance(value, bool) for value in values):
        return np.array(values)
    if any(isinstance(value, list) for value in values):
        length = len(next(value for value in values if isinstance(value, list)))
        for row, value in enumerate(values):
            if not isinstance(value, list) or len(value) != length:
                found = f"{len(value)} values" if isinstance(value, list) else "no list"
                raise BadRow(row, f"`{name}` has {found}, others have {length}; give every row one value a class")
    try:
        # None becomes NaN, which is refused later with its row.
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        shapes = [_shape(value) for value in values]
        row = next((row for row, shape in enumerate(shapes) if shape is None or shape != shapes[0]), 0)
        raise BadRow(row, f"`{name}` is {json.dumps(values[row])[:40]}, not a number; fix or drop the row") from None


def _json_strings(name: str, values: list[Any]) -> Strings:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise BadRow(row, f"`{name}` is {json.dumps(value)[:40]} where others are text; use one kind")
    distinct = sorted({value for value in values if value is not None})
    codes = {value: code for code, value in enumerate(distinct)}
    return Strings(np.array([codes.get(value, -1) for value in values], dtype=np.int64), tuple(distinct))


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of a number or nested lists of numbers; None of anything else."""
    try:
        return np.array(value, dtype=np.float64).shape
    except (TypeError, ValueError, OverflowError):
        return None
