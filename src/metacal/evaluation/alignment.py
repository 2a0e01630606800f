"""Rows of several models' files, matched by their ids: what a paired comparison stands on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.tables import Strings, readable


def read_ids(file: PredictionFile, rows: int = 2**16) -> list[str] | None:
    """The column ``id`` as text, row by row; None if there is none."""
    found = [name for name in file.table.names if name.lower() == "id"]
    if len(found) != 1:
        return None
    ids: list[str] = []
    with readable(file.path):
        for batch in file.table.batches(found, rows, text=found[0]):
            column = batch[found[0]]
            if isinstance(column, Strings):
                ids += [column.values[code] if code >= 0 else "" for code in column.codes]
            else:
                ids += map(_spell, column.tolist())
    return ids


def align_rows(files: Sequence[PredictionFile]) -> list[NDArray[np.int64]] | None:
    """For each file, its row numbers in the order of the first file's ids; None if a file has no ids.

    Raises:
        InvalidFileError: an id is there twice, or missing in a file; the message names one.
    """
    columns = [read_ids(file) for file in files]
    orders = []
    for file, ids in zip(files, columns, strict=True):
        if ids is None or columns[0] is None:
            return None
        places = {identity: row for row, identity in enumerate(ids)}
        if len(places) < len(ids):
            twice = next(identity for row, identity in enumerate(ids) if places[identity] != row)
            raise InvalidFileError(f"{file.place}: id {twice} is there twice; drop one of its rows.")
        for here, there, missing in ((ids, columns[0], file), (columns[0], ids, files[0])):
            if odd := sorted(set(there) - set(here)):
                raise InvalidFileError(f"{missing.place}: has no id {odd[0]}, which another file has; add or drop it.")
        orders.append(np.array([places[identity] for identity in columns[0]], dtype=np.int64))
    return orders


def _spell(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
