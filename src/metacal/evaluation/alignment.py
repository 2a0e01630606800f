"""Rows of several models' files, matched by their ids: what a paired comparison stands on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidFileError
from metacal.evaluation.group_labels import join_columns
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.tables import Column, Strings, readable


def read_ids(file: PredictionFile, rows: int = 2**16) -> NDArray[np.str_] | None:
    """The column ``id`` as text, row by row; None if there is none."""
    found = [name for name in file.table.names if name.lower() == "id"]
    if len(found) != 1:
        return None
    with readable(file.path):
        columns: list[Column] = [batch[found[0]] for batch in file.table.batches(found, rows, text=found[0])]
    column = join_columns(columns)
    if isinstance(column, Strings):
        return np.array([*column.values, ""])[column.codes]
    is_whole = column.dtype.kind == "f" and bool((column == np.floor(column)).all())
    return (column.astype(np.int64) if is_whole else column).astype(str)


def align_rows(files: Sequence[PredictionFile]) -> list[NDArray[np.int64]] | None:
    """For each file, where each of its rows stands in the first one, by their ids; None if a file has no ids.

    Raises:
        InvalidFileError: an id is there twice, or missing in a file; the message names one.
    """
    columns = [read_ids(file) for file in files]
    first = columns[0]
    if first is None or any(ids is None for ids in columns):
        return None
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    _check_once(files[0], ordered)
    places = [np.arange(len(first))]
    for file, ids in zip(files[1:], columns[1:], strict=True):
        assert ids is not None
        if len(ids) == len(first) and bool((ids == first).all()):
            places.append(places[0])
            continue
        _check_once(file, np.sort(ids))
        for here, there, missing in ((ids, first, file), (first, ids, files[0])):
            if len(odd := np.setdiff1d(there, here)):
                raise InvalidFileError(f"{missing.place}: has no id {odd[0]}, which another file has; add or drop it.")
        places.append(order[np.searchsorted(ordered, ids)])
    return places


def _check_once(file: PredictionFile, ordered: NDArray[np.str_]) -> None:
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise InvalidFileError(f"{file.place}: id {ordered[twice[0]]} is there twice; drop one of its rows.")
