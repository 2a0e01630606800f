"""Columns of a prediction file that are neither scores nor target, copied to the output."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metacal.errors import warn
from metacal.evaluation.arrow_tables import ArrowTable
from metacal.evaluation.columns import LOGIT_WORDS, PROB_WORDS
from metacal.evaluation.json_tables import JSONLinesTable
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.tables import ArrayTable, Column, Strings, readable

AT_ONCE = 2**16


def other_columns(file: PredictionFile) -> Callable[[int], Any] | None:
    """Return a reader of the next rows of the other columns, as Arrow tables; None if there are none.

    Probabilities and logits of the same classes are scores too and left out, and so are arrays of another length. Text
    of a CSV stays text.
    """
    names = _names(file)
    if not names:
        return None
    tables, held = _read(file, names), pa.table({})

    def take(rows: int) -> Any:
        nonlocal held
        with readable(file.path):
            while held.num_rows < rows:
                held = pa.concat_tables([held, next(tables)]) if held.num_rows else next(tables)
        taken, held = held.slice(0, rows), held.slice(rows)
        return taken

    return take


def to_arrow(column: Column) -> Any:
    """Return an array of any shape, or text, as an Arrow array; further dimensions become lists.

    None if Arrow has no such type: complex numbers, say, or lists without values.
    """
    if isinstance(column, Strings):
        codes = pa.array(column.codes, mask=column.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(column.values, pa.string())).dictionary_decode()
    if not column.size:
        return None
    if column.ndim > 1:
        inner = to_arrow(column.reshape(-1, *column.shape[2:]))
        return None if inner is None else pa.FixedSizeListArray.from_arrays(inner, column.shape[1])
    try:
        return pa.array(column.astype(column.dtype.newbyteorder("="), copy=False))
    except pa.ArrowNotImplementedError:
        return None


def to_numpy(array: Any) -> NDArray[Any] | None:
    """Return an Arrow array as NumPy, missing text as empty text; None if NumPy has no such type."""
    if pa.types.is_fixed_size_list(array.type) or pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = pc.unique(pc.list_value_length(array)).to_pylist()
        inner = to_numpy(array.flatten()) if len(lengths) == 1 and not array.null_count else None
        return None if inner is None else inner.reshape(len(array), lengths[0], *inner.shape[1:])
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return np.array(array.fill_null("").to_pylist(), dtype=str)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return None if values.dtype == object else values


def _names(file: PredictionFile) -> list[str]:
    table, names = file.table, list(file.table.names)
    if not isinstance(table, ArrowTable | JSONLinesTable | ArrayTable):
        return []  # its rows are pixels or labels, not those of the file
    classes = [name.lower() for name in file.class_names]

    def is_score(name: str) -> bool:
        word, _, label = name.lower().replace(".", "_", 1).partition("_")
        return word in PROB_WORDS + LOGIT_WORDS and label in ("", *classes)

    kept = [name for name in names if name not in file.columns and names.count(name) == 1 and not is_score(name)]
    if not isinstance(table, ArrayTable):
        return kept
    rows = len(table.columns[file.columns[0]])
    kept = [name for name in kept if len(table.columns[name]) == rows]
    odd = [name for name in kept if to_arrow(table.columns[name][:1]) is None]
    if odd:
        warn(f"{file.path}: {', '.join(odd)} cannot be copied and are left out: no other format has such a type.")
    return [name for name in kept if name not in odd]


def _read(file: PredictionFile, names: Sequence[str]) -> Iterator[Any]:
    """Yield tables of some rows each, in order."""
    table = file.table
    if isinstance(table, ArrowTable):
        for some in table.arrow_batches(names, AT_ONCE):
            # The values of a dictionary may change from batch to batch, which no writer allows.
            types = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in some.schema.types]
            yield some.cast(pa.schema(list(zip(names, types, strict=True))))
    elif isinstance(table, JSONLinesTable):
        rows = list(table.records())
        yield pa.table({name: _from_json([row.get(name) for row in rows]) for name in names})
    elif isinstance(table, ArrayTable):
        yield pa.table({name: to_arrow(table.columns[name]) for name in names})


def _from_json(values: list[Any]) -> Any:
    """Return values of one type as an Arrow array; mixed types, and what a format may not hold, as JSON text."""
    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        array = None
    if array is None or "struct<>" in str(array.type):  # Parquet has no objects without fields
        return pa.array([None if value is None else json.dumps(value) for value in values])
    return array
