"""Tables whose rows hold many answers, unrolled so that each is a row: labels of a sample, pixels of an image."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidValueError
from metacal.evaluation.checks import read_numbers
from metacal.evaluation.columns import (
    TARGET_WORDS,
    Layout,
    find_layout,
    list_names,
    match_columns,
    without_common_prefix,
)
from metacal.evaluation.confidences import read_correct
from metacal.evaluation.tables import ArrayTable, Column, Strings, Table

NARROW = "intervals take them for independent, so they are too narrow"
LABEL = "label"
"""The column of an `EventTable` that says which label a row is of."""


class EventTable:
    """Every label of every row as a yes/no event: a score, an outcome and the label's name.

    Args:
        table: the rows.
        layout: where the scores are; found without a target.
        targets: columns of 0 and 1 in the order of the scores, or one that holds lists of them.
    """

    class_names = ("no", "yes")
    unit = "row"

    def __init__(self, table: Table, layout: Layout, targets: Sequence[str]) -> None:
        self._table, self._scores, self._targets = table, layout.scores, tuple(targets)
        self.score = "logits" if layout.is_logits else "probs"
        self.names = [self.score, "target", LABEL]
        labels = layout.class_names
        if len(layout.scores) == 1:
            first = next(iter(table.batches(layout.scores, 1)), {}).get(layout.scores[0])
            if first is None or isinstance(first, Strings) or first.ndim != 2:
                raise InvalidValueError(
                    f"multilabel scores must have a column for each label, or one of lists, got {layout.scores[0]}; "
                    "leave out `multilabel` (--multilabel) for a binary model."
                )
            labels = labels or tuple(map(str, range(first.shape[1])))
        self.labels = labels or layout.scores
        self.answers = len(self.labels)
        self.notes = [f"multilabel: {self.answers} labels a row, each a yes/no event; {NARROW}"]

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield events of some rows, those of a row together."""
        wanted = (*self._scores, *self._targets)
        for batch in self._table.batches(wanted, max(1, rows // self.answers)):
            scores = self._matrix([read_numbers(name, batch[name]) for name in self._scores], "scores")
            outcomes = [self._outcomes(name, batch[name]) for name in self._targets]
            codes = np.tile(np.arange(self.answers), len(scores))
            found: dict[str, Column] = {self.score: scores.reshape(-1), LABEL: Strings(codes, tuple(self.labels))}
            yield found | {"target": self._matrix(outcomes, "targets").reshape(-1).astype(np.int64)}

    def _matrix(self, arrays: list[NDArray[Any]], what: str) -> NDArray[Any]:
        whole = arrays[0] if len(arrays) == 1 and arrays[0].ndim == 2 else np.stack(arrays, axis=1)
        if whole.ndim != 2 or whole.shape[1] != self.answers:
            raise InvalidValueError(f"{what} must have {self.answers} labels a row, got {whole.shape[1:]}.")
        return whole

    @staticmethod
    def _outcomes(name: str, column: Column) -> NDArray[Any]:
        if isinstance(column, Strings) or column.ndim != 2:
            return read_correct(column, name)
        flat = read_correct(column.reshape(-1), name, per_row=column.shape[1])
        return flat.reshape(column.shape)


def find_events(
    table: Table, *, probs: str | None, logits: str | None, target: str | None, class_names: Sequence[str] | None
) -> EventTable:
    """Rows of several labels; arguments as in `read_predictions`, ``target`` may be a pattern too.

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
        is_arrays=isinstance(table, ArrayTable) and not table.is_records,
    )
    if len(found) == 1:
        return EventTable(table, layout, found)
    by_label = dict(zip(without_common_prefix(found), found, strict=True))
    if by_label.keys() != set(layout.class_names or ()):
        raise InvalidValueError(
            f"scores ({list_names(layout.scores)}) and targets ({list_names(found)}) must be of the same labels; name "
            "both with --probs and --target."
        )
    return EventTable(table, layout, [by_label[label] for label in layout.class_names or ()])


class PixelTable:
    """Every pixel of every image as a row, image by image; tokens of sequences too.

    Args:
        table: arrays of scores ``(n, K, ...)``, ``(n, ..., K)`` or, of a binary model, ``(n, ...)``, and of targets
            ``(n, ...)``.
        score: the array of scores.
        target: the array of targets.
        ignore: a target that does not count.
    """

    unit = "image"

    def __init__(self, table: ArrayTable, score: str, target: str, ignore: int | None = None) -> None:
        self._scores, self._targets = np.asanyarray(table.array(score)), np.asanyarray(table.array(target))
        self._score, self._target, self._ignore = score, target, ignore
        self.names, self.class_names = [score, target], table.class_names
        self.answers = int(np.prod(self._targets.shape[1:]))
        shape = " x ".join(map(str, self._targets.shape[1:]))
        self.notes = [f"{len(self._targets):,} images or sequences of {shape}, each pixel or token a row; {NARROW}"]
        if ignore is not None:
            self.notes.append(f"target {ignore} left out")

    def batches(self, columns: Sequence[str], rows: int, text: str | None = None) -> Iterator[dict[str, Column]]:
        """Yield the pixels of an image at a time."""
        axis = 0 if self._scores.shape[2:] == self._targets.shape[1:] else -1
        is_single = self._scores.shape == self._targets.shape
        for scores, targets in zip(self._scores, self._targets, strict=True):
            flat, labels = np.asarray(scores), np.asarray(targets).reshape(-1)
            flat = flat.reshape(-1) if is_single else np.moveaxis(flat, axis, -1).reshape(len(labels), -1)
            if self._ignore is not None:
                kept = labels != self._ignore
                flat, labels = flat[kept], labels[kept]
            if len(labels):
                found: dict[str, Column] = {self._score: flat, self._target: labels}
                yield {name: found[name] for name in columns}
