"""Tables with other rows than their file: labels of a sample, pixels of an image, rows that have a target."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidValueError
from metacal.evaluation.columns import (
    TARGET_WORDS,
    Layout,
    find_layout,
    list_names,
    match_columns,
    without_common_prefix,
)
from metacal.evaluation.confidences import read_correct
from metacal.evaluation.tables import Column, Strings, Table, read_numbers

NARROW = "intervals take them for independent, so they are too narrow"
LABEL = "label"
"""The column of an `EventTable` that says which label a row is of."""


class EventTable(Table):
    """Each label of each row as a yes/no event: a score, an outcome and the label's name.

    ``targets`` are columns of 0 and 1 in the order of the scores, or one that holds lists of them.
    """

    class_names = ("no", "yes")
    target = "target"

    def __init__(self, table: Table, layout: Layout, targets: Sequence[str]) -> None:
        self._table, self._scores, self._targets = table, layout.scores, tuple(targets)
        self._score = "logits" if layout.is_logits else "probs"
        self.names = [self._score, "target", LABEL]
        labels = layout.class_names
        if len(layout.scores) == 1:
            first = next(iter(table.batches(layout.scores, 1)), {}).get(layout.scores[0])
            if first is None or isinstance(first, Strings) or first.ndim != 2:
                raise InvalidValueError(
                    f"multilabel scores must have a column for each label, or one of lists, got {layout.scores[0]}; "
                    "leave out `multilabel` (--multilabel) for a binary model."
                )
            labels = labels or tuple(map(str, range(first.shape[1])))
        self._labels = labels or layout.scores
        self.notes = [f"multilabel: {len(self._labels)} labels a row, each a yes/no event; {NARROW}"]

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the events of some rows, grouped by row."""
        answers = len(self._labels)
        for batch in self._table.batches((*self._scores, *self._targets), max(1, rows // answers)):
            scores = self._matrix([read_numbers(name, batch[name]) for name in self._scores], "scores")
            outcomes = self._matrix([_outcomes(name, batch[name]) for name in self._targets], "targets")
            labels = Strings(np.tile(np.arange(answers), len(scores)), tuple(self._labels))
            yield {self._score: scores.reshape(-1), "target": outcomes.reshape(-1).astype(np.int64), LABEL: labels}

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        return super().place(row // len(self._labels))

    def _matrix(self, arrays: list[NDArray[Any]], what: str) -> NDArray[Any]:
        whole = arrays[0] if len(arrays) == 1 and arrays[0].ndim == 2 else np.stack(arrays, axis=1)
        if whole.ndim != 2 or whole.shape[1] != len(self._labels):
            raise InvalidValueError(f"{what} must have {len(self._labels)} labels a row, got {whole.shape[1:]}.")
        return whole


def _outcomes(name: str, column: Column) -> NDArray[Any]:
    if isinstance(column, Strings) or column.ndim != 2:
        return read_correct(column, name)
    return read_correct(column.reshape(-1), name, per_row=column.shape[1]).reshape(column.shape)


def find_events(
    table: Table, *, probs: str | None, logits: str | None, target: str | None, class_names: Sequence[str] | None
) -> EventTable:
    """Find rows of several labels; arguments as in `read_predictions`, ``target`` may be a pattern.

    Raises:
        InvalidValueError: scores and targets are not of the same labels.
    """
    names = list(table.names)
    if target is not None:
        found = [name for pattern in target.split(",") for name in match_columns(names, pattern)]
    else:
        starts = tuple(word + end for word in TARGET_WORDS for end in "_.")
        alone = [name for name in names if name.lower() in TARGET_WORDS]
        found = alone or [name for name in names if name.lower().startswith(starts)]
    if not found:
        raise InvalidValueError(f"no columns of 0 and 1 for the targets; name them with --target: {list_names(names)}.")
    layout = find_layout(
        [name for name in names if name not in found],
        probs=probs,
        logits=logits,
        class_names=class_names or table.class_names,
        needs_target=False,
        is_arrays=bool(table.arrays),
    )
    labels = layout.class_names or ()
    by_label = dict(zip(without_common_prefix(found), found, strict=True))
    if len(found) > 1 and by_label.keys() != set(labels):
        raise InvalidValueError(
            f"scores ({list_names(layout.scores)}) and targets ({list_names(found)}) must be of the same labels; name "
            "both with --probs and --target."
        )
    return EventTable(table, layout, found if len(found) == 1 else [by_label[label] for label in labels])


class PixelTable(Table):
    """Each pixel of each image, or token of each sequence, as a row.

    Scores are ``(n, K, ...)``, ``(n, ..., K)`` or, of a binary model, ``(n, ...)``; targets ``(n, ...)``. ``ignore`` is
    a target that does not count.
    """

    def __init__(self, table: Table, score: str, target: str, ignore: int | None = None) -> None:
        self._scores, self._targets = np.asanyarray(table.arrays[score]), np.asanyarray(table.arrays[target])
        self._ignore = ignore
        if ignore is not None and self._targets.dtype.kind not in "biuf":
            raise InvalidValueError(f"`ignore` (--ignore) needs targets that are numbers, got {self._targets.dtype}.")
        self.names, self.class_names = [score, target], table.class_names
        shape = " x ".join(map(str, self._targets.shape[1:]))
        self.notes = [f"{len(self._targets):,} images or sequences of {shape}, each pixel or token a row; {NARROW}"]
        self.notes += [] if ignore is None else [f"target {ignore} left out"]

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the pixels of one image at a time."""
        axis = 0 if self._scores.shape[2:] == self._targets.shape[1:] else -1
        is_single = self._scores.shape == self._targets.shape
        for scores, targets in zip(self._scores, self._targets, strict=True):
            flat, labels = np.asarray(scores), np.asarray(targets).reshape(-1)
            if not len(labels):
                continue
            flat = flat.reshape(-1) if is_single else np.moveaxis(flat, axis, -1).reshape(len(labels), -1)
            if self._ignore is not None:
                kept = labels != self._ignore
                flat, labels = flat[kept], labels[kept]
            if len(labels):
                found: dict[str, Column] = dict(zip(self.names, (flat, labels), strict=True))
                yield {name: found[name] for name in columns}

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        counts = np.full(len(self._targets), int(np.prod(self._targets.shape[1:])))
        if self._ignore is not None:
            counts = (self._targets != self._ignore).reshape(len(self._targets), -1).sum(1)
        return f"image {np.searchsorted(counts.cumsum(), row, side='right') + 1}"


class LabelledTable(Table):
    """The rows of a table that have a target."""

    def __init__(self, table: Table, target: str) -> None:
        self._table, self._target, self._dropped = table, target, np.empty(0, dtype=np.int64)
        self.names, self.class_names, self.target = table.names, table.class_names, table.target
        self.arrays, self.notes = table.arrays, table.notes

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the labelled rows of each batch; the notes say how many others there were."""
        dropped, seen = [], 0
        for batch in self._table.batches(tuple(dict.fromkeys((*columns, self._target))), rows, text):
            target = batch[self._target]
            if isinstance(target, Strings):
                is_missing = target.codes < 0
            else:
                is_missing = np.isnan(target) if target.dtype.kind == "f" else np.zeros(len(target), dtype=bool)
            dropped.append(seen + np.flatnonzero(is_missing))
            seen += len(target)
            self._dropped = np.concatenate(dropped)
            if not is_missing.all():
                yield {name: batch[name][np.flatnonzero(~is_missing)] for name in columns}
        self.notes = [*self._table.notes, f"{len(self._dropped):,} rows without a target left out"]

    def place(self, row: int) -> str:
        """Describe the position of a row in the file, for messages."""
        before = np.searchsorted(self._dropped - np.arange(len(self._dropped)), row, side="right")
        return self._table.place(row + int(before))
