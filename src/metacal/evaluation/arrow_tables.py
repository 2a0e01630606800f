"""CSV, Parquet and Arrow (Feather, IPC) files as tables, read in batches so that size does not matter."""

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

from metacal.errors import InvalidFileError
from metacal.evaluation.tables import BadRow, Column, Strings, first_line, is_number

CSV_BLOCK = 2**22


def open_arrow_table(path: Path, suffix: str) -> "ParquetTable | ArrowTable | CSVTable":
    """Open a file by its extension.

    Raises:
        InvalidFileError: it is not what its extension says.
    """
    try:
        if suffix in (".parquet", ".pq"):
            return ParquetTable(path)
        return CSVTable(path) if suffix in (".csv", ".tsv") else ArrowTable(path)
    except pa.ArrowException as error:
        raise InvalidFileError(f"{path}: is not a whole {suffix} file ({first_line(error)}); write it again.") from None


class ParquetTable:
    """Row groups are decoded a batch at a time, through a small buffer: a group of any size fits in memory."""

    class_names = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with pq.ParquetFile(path) as file:
            self.names = _flat_names(file.schema_arrow)

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield record batches of the columns asked for."""
        try:
            with pq.ParquetFile(self._path, pre_buffer=False, buffer_size=2**20) as file:
                wanted = _top_names(file.schema_arrow, columns)
                for batch in file.iter_batches(batch_size=rows, columns=wanted):
                    batch.validate(full=True)
                    yield _columns(batch, columns)
        except pa.ArrowException as error:
            raise InvalidFileError(f"{self._path}: is damaged ({first_line(error)}); write it again.") from None


class ArrowTable:
    """Arrow's own file or stream format; the file is mapped, not read."""

    class_names = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with pa.memory_map(str(path)) as source:
            self.names = _flat_names(self._reader(source).schema)

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the file's record batches, cut where they are long."""
        try:
            with pa.memory_map(str(self._path)) as source:
                reader = self._reader(source)
                is_file = isinstance(reader, pa.ipc.RecordBatchFileReader)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
                for batch in batches:
                    # Arrow takes lengths, offsets and indices as they are, and would read what is not its own.
                    batch.validate(full=True)
                    for first in range(0, batch.num_rows, rows):
                        yield _columns(batch.slice(first, rows), columns)
        except pa.ArrowException as error:
            raise InvalidFileError(f"{self._path}: is damaged ({first_line(error)}); write it again.") from None

    @staticmethod
    def _reader(source: Any) -> Any:
        try:
            return pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source)


class CSVTable:
    """Comma, semicolon, tab or bar, whichever the header has most of; spaces around names and values do not count.

    With any but commas, numbers may have a decimal comma: so spreadsheets write them in half the world.
    """

    class_names = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            header = re.split("[\r\n]", file.readline(2**24).decode("utf-8-sig"))[0]
        self._delimiter = max(",;\t|", key=header.count)
        found = next(csv.reader([header], delimiter=self._delimiter), [])
        self.names = [name.strip() for name in found]
        self._as_written = dict(zip(self.names, found, strict=True))
        if self.names and all(is_number(name) for name in self.names):
            raise InvalidFileError(
                f"{path}: the first line must name the columns, got numbers; put a header before it."
            )

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield blocks of parsed rows: numbers where all of a block's column are, else text."""
        written = {name: self._as_written[name] for name in columns}
        options = pa.csv.ConvertOptions(
            include_columns=list(written.values()),
            column_types={name: pa.string() for name in written.values()},
            strings_can_be_null=True,
            null_values=[""],
        )
        try:
            reader = pa.csv.open_csv(
                self._path,
                read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
                parse_options=self._parse_options(),
                convert_options=options,
            )
            with reader:
                for batch in reader:
                    yield {
                        name: _cells(batch.column(there), name == text, self._delimiter != ",")
                        for name, there in written.items()
                    }
        except pa.ArrowException as error:
            raise InvalidFileError(f"{self._path}: {self._complaint(error)}") from None

    def _parse_options(self) -> Any:
        return pa.csv.ParseOptions(delimiter=self._delimiter)

    @staticmethod
    def _complaint(error: Exception) -> str:
        ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if ragged:  # Arrow counts the header as row 1
            row, expected, got = (int(number) for number in ragged.groups())
            return f"row {row - 1} has {got} values, the header has {expected}; mend or drop the row."
        if "UTF8" in str(error):
            return "is not text in UTF-8; write it again as such."
        return f"cannot be parsed ({first_line(error)}); write it again."


def _flat_names(schema: Any) -> list[str]:
    names = []
    for field in schema:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{inner.name}" for inner in field.type]
        else:
            names.append(field.name)
    return names


def _top_names(schema: Any, columns: Sequence[str]) -> list[str]:
    """The columns of the file that hold these: all of a nested one for any field of it."""
    return [
        field.name
        for field in schema
        if field.name in columns or any(name.startswith(f"{field.name}.") for name in columns)
    ]


def _columns(batch: Any, columns: Sequence[str]) -> dict[str, Column]:
    return {name: _column(name, _array(batch, name)) for name in columns}


def _array(batch: Any, name: str) -> Any:
    names = batch.schema.names
    top = name if name in names else max((field for field in names if name.startswith(f"{field}.")), key=len)
    if names.count(top) > 1:
        raise BadRow(0, f"column {top} is there twice; rename one")
    if top == name:
        return batch.column(name)
    return pc.struct_field(batch.column(top), name[len(top) + 1 :])


def _column(name: str, array: Any) -> Column:
    kind = array.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type):
            return _strings(array)
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _strings(array.cast(pa.string()).dictionary_encode())
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(name, array)
    if pa.types.is_boolean(kind):
        values = _values(array.cast(pa.int8()))
        return values if array.null_count else values.astype(bool)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise BadRow(0, f"column {name} holds {kind}, not numbers; write it as numbers")
    return _values(array.cast(pa.float64()) if pa.types.is_null(kind) else array)


def _values(array: Any) -> NDArray[Any]:
    """Numbers, NaN where one is missing; shared where none is, as `to_numpy` imports pandas where it is installed."""
    shared = len(array) and not array.null_count
    return np.from_dlpack(array) if shared else array.to_numpy(zero_copy_only=False)


def _strings(array: Any) -> Strings:
    codes = array.indices.cast(pa.int64())
    codes = _values(codes.fill_null(-1) if codes.null_count else codes)
    return Strings(codes, tuple(str(value) for value in array.dictionary.to_pylist()))


def _lists(name: str, array: Any) -> Column:
    if pa.types.is_nested(array.type.value_type):
        raise BadRow(0, f"column {name} must hold lists of numbers, not {array.type}")
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise BadRow(row, f"`{name}` has no value; mend or drop the row")
    lengths = _values(pc.list_value_length(array))
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.flatnonzero(lengths != lengths[0])[0])
        raise BadRow(
            row, f"`{name}` has {lengths[row]} values, others have {lengths[0]}; give every row one value a class"
        )
    values = _column(name, array.flatten())
    if isinstance(values, Strings):
        raise BadRow(0, f"column {name} must hold lists of numbers, not {array.type}")
    return values.reshape(len(array), len(values) // max(len(array), 1))


def _cells(array: Any, is_text: bool, may_have_commas: bool) -> Column:
    """Text of a CSV column as numbers where all of it is, unless it is to stay text."""
    if is_text:
        return _strings(pc.utf8_trim_whitespace(array).dictionary_encode())
    try:
        return _parsed(array)
    except pa.ArrowInvalid:
        array = pc.utf8_trim_whitespace(array)
    try:
        return _parsed(pc.replace_substring(array, ",", ".") if may_have_commas else array)
    except pa.ArrowInvalid:
        return _strings(array.dictionary_encode())


def _parsed(array: Any) -> Column:
    return _values(pc.cast(array, pa.float64()))
