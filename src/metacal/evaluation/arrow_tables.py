"""Parquet, Arrow (Feather, IPC) and CSV files as tables, read in batches so that size does not matter.

Each format has Arrow's own reader rather than the scanner of ``pyarrow.dataset``: that one decodes whole row groups (6
million rows of 10 classes take 350 MB rather than 90), reads no Arrow streams and maps no files.
"""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from metacal.errors import InvalidFileError
from metacal.evaluation.tables import BadRow, Column, Strings, Table, first_line, is_number

CSV_BLOCK = 2**22
BUFFER = 2**20


def open_arrow_table(path: Path, suffix: str) -> Table:
    """Open a file by its extension.

    Raises:
        InvalidFileError: it is not what its extension says.
    """
    kind = {".parquet": ParquetTable, ".pq": ParquetTable, ".csv": CSVTable, ".tsv": CSVTable}.get(suffix, ArrowTable)
    try:
        return kind(path)
    except pa.ArrowException as error:
        raise InvalidFileError(f"{path}: is not a whole {suffix} file ({first_line(error)}); write it again.") from None


class ArrowTable(Table):
    """Arrow's file or stream format, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.names = self._find_names()

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the columns of the file's record batches, split if they are long."""
        try:
            for batch in self._read(columns, rows):
                for first in range(0, batch.num_rows, rows):
                    some = batch.slice(first, rows)
                    yield {name: self._column(some, name, is_text=name == text) for name in columns}
        except pa.ArrowException as error:
            raise InvalidFileError(f"{self._path}: {self._complaint(error)}") from None

    def arrow_batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of the columns; CSV columns are text."""
        try:
            for batch in self._read(columns, rows):
                yield pa.table([self._array(batch, name) for name in columns], names=list(columns))
        except pa.ArrowException as error:
            raise InvalidFileError(f"{self._path}: {self._complaint(error)}") from None

    def _find_names(self) -> list[str]:
        with pa.memory_map(str(self._path)) as source:
            return _flat_names(_ipc_reader(source).schema)

    def _read(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield record batches with at least these columns, of about this many rows."""
        with pa.memory_map(str(self._path)) as source:
            reader = _ipc_reader(source)
            is_file = isinstance(reader, pa.ipc.RecordBatchFileReader)
            for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
                # Arrow takes lengths, offsets and indices as they are, and would read what is not its own.
                batch.validate(full=True)
                yield batch

    def _array(self, batch: Any, name: str) -> Any:
        names = batch.schema.names
        top = name if name in names else max((field for field in names if name.startswith(f"{field}.")), key=len)
        if names.count(top) > 1:
            raise BadRow(0, f"column {top} is there twice; rename one")
        array = batch.column(top)
        return array if top == name else pc.struct_field(array, name[len(top) + 1 :])

    def _column(self, batch: Any, name: str, is_text: bool) -> Column:
        return _column(name, self._array(batch, name))

    def _complaint(self, error: Exception) -> str:
        return f"is damaged ({first_line(error)}); write it again."


class ParquetTable(ArrowTable):
    """Decodes row groups in batches through a small buffer, so that a group of any size fits in memory."""

    def _find_names(self) -> list[str]:
        with pq.ParquetFile(self._path) as file:
            return _flat_names(file.schema_arrow)

    def _read(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        with pq.ParquetFile(self._path, pre_buffer=False, buffer_size=BUFFER) as file:
            tops = [field.name for field in file.schema_arrow]  # all of a nested column for any field of it
            wanted = [top for top in tops if top in columns or any(name.startswith(f"{top}.") for name in columns)]
            for batch in file.iter_batches(batch_size=rows, columns=wanted):
                batch.validate(full=True)
                yield batch


class CSVTable(ArrowTable):
    """Detects the separator (comma, semicolon, tab or bar) from the header; strips spaces around names and values.

    Values are numbers where all of a batch's column are, else text. With any delimiter but commas, numbers may have a
    decimal comma, as spreadsheets write them in many countries.
    """

    def _find_names(self) -> list[str]:
        path = self._path
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            header = re.split("[\r\n]", file.readline(2**24).decode("utf-8-sig"))[0]
        self._delimiter = max(",;\t|", key=header.count)
        found = next(csv.reader([header], delimiter=self._delimiter), [])
        names = [name.strip() for name in found]
        self._as_written = dict(zip(names, found, strict=True))
        if names and all(map(is_number, names)):
            raise InvalidFileError(
                f"{path}: the first line must name the columns, got numbers; put a header before it."
            )
        return names

    def _read(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        written = [self._as_written[name] for name in columns]
        text = dict.fromkeys(written, pa.string())
        with pa.csv.open_csv(
            self._path,
            # One thread: only then does Arrow say which row is wrong.
            pa.csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
            pa.csv.ParseOptions(delimiter=self._delimiter),
            pa.csv.ConvertOptions(
                include_columns=written, column_types=text, strings_can_be_null=True, null_values=[""]
            ),
        ) as reader:
            yield from reader

    def _array(self, batch: Any, name: str) -> Any:
        return batch.column(self._as_written[name])

    def _column(self, batch: Any, name: str, is_text: bool) -> Column:
        array = self._array(batch, name)
        try:
            if not is_text:
                return _values(pc.cast(array, pa.float64()))
        except pa.ArrowInvalid:
            pass
        array = pc.utf8_trim_whitespace(array)
        try:
            if not is_text:
                plain = array if self._delimiter == "," else pc.replace_substring(array, ",", ".")
                return _values(pc.cast(plain, pa.float64()))
        except pa.ArrowInvalid:
            pass
        return _strings(array.dictionary_encode())

    def _complaint(self, error: Exception) -> str:
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if ragged:  # Arrow counts the header as row 1
            row, expected, got = map(int, ragged.groups())
            return f"row {row - 1} has {got} values, the header has {expected}; fix or drop the row."
        if "UTF8" in str(error):
            return "is not text in UTF-8; write it again as such."
        return f"cannot be parsed ({first_line(error)}); write it again."


def _ipc_reader(source: Any) -> Any:
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def _flat_names(schema: Any) -> list[str]:
    names = []
    for field in schema:
        is_struct = types.is_struct(field.type)
        names += [f"{field.name}.{inner.name}" for inner in field.type] if is_struct else [field.name]
    return names


def _column(name: str, array: Any) -> Column:
    if types.is_dictionary(array.type) and not _is_text(array.type.value_type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_dictionary(kind):
        return _strings(array)
    if _is_text(kind) or types.is_string_view(kind):
        return _strings(array.cast(pa.string()).dictionary_encode())
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        return _lists(name, array)
    if types.is_boolean(kind):
        values = _values(array.cast(pa.int8()))
        return values if array.null_count else values.astype(bool)
    if types.is_decimal(kind) or types.is_null(kind):
        return _values(array.cast(pa.float64()))
    if not (types.is_integer(kind) or types.is_floating(kind)):
        raise BadRow(0, f"column {name} holds {kind}, not numbers; write it as numbers")
    return _values(array)


def _is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _values(array: Any) -> NDArray[Any]:
    """Return numbers, NaN if missing; without copying if none is missing, because `to_numpy` may import pandas."""
    shared = len(array) and not array.null_count
    return np.from_dlpack(array) if shared else array.to_numpy(zero_copy_only=False)


def _strings(array: Any) -> Strings:
    codes = array.indices.cast(pa.int64())
    codes = _values(codes.fill_null(-1) if codes.null_count else codes)
    return Strings(codes, tuple(str(value) for value in array.dictionary.to_pylist()))


def _lists(name: str, array: Any) -> Column:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRow(row, f"`{name}` has no value; fix or drop the row")
    lengths = _values(pc.list_value_length(array))
    odd = np.flatnonzero(lengths != lengths[:1])
    if len(odd):
        found = f"{lengths[odd[0]]} values, others have {lengths[0]}"
        raise BadRow(int(odd[0]), f"`{name}` has {found}; give every row one value a class")
    is_nested = types.is_nested(array.type.value_type)
    values = None if is_nested else _column(name, array.flatten())
    if values is None or isinstance(values, Strings):
        raise BadRow(0, f"column {name} must hold lists of numbers, not {array.type}")
    return values.reshape(len(array), len(values) // max(len(array), 1))
