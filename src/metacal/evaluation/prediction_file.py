"""A prediction file as batches of checked scores and class numbers; every complaint names file, row or column."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation.checks import check_scores, class_numbers, read_numbers, to_numbers
from metacal.evaluation.columns import Layout, find_layout, list_names, match_columns
from metacal.evaluation.confidences import are_percentages, find_correct, read_confidences, read_correct
from metacal.evaluation.tables import (
    ArrayTable,
    BadRow,
    Column,
    Strings,
    Table,
    is_number,
    open_table,
    read_ahead,
    readable,
)
from metacal.evaluation.unrolled import LABEL, EventTable, PixelTable, find_events
from metacal.functional.inputs import row_sum_tolerance

T = TypeVar("T")

FORMAT_NAMES = ("auto", "table", "lm-eval", "inspect", "pipeline", "samples")
BATCH_ELEMENTS = 2**21
"""Numbers read at once: 16 MB of float32."""

CHUNK_ELEMENTS = 2**18
"""Scores handled at once: they stay in cache between the passes over them."""


class Batch(NamedTuple):
    """Some rows of a file.

    Attributes:
        scores: ``(m, K)``, float32 or float64, logits or probabilities; columns may be what lies together in memory.
            Of top-label predictions, confidences ``(m, 1)``.
        targets: int64 ``(m,)``, or None where the file has none. Of top-label predictions 1 where they are right.
        groups: the column that groups the rows, or None.
    """

    scores: Tensor
    targets: Tensor | None
    groups: Column | None = None


class PredictionFile:
    """An opened file whose columns have been found; its rows are read in batches, as often as wanted.

    The arguments are those of `read_predictions`; a file without a target is refused if it ``needs_target``, and
    ``table`` is the file if it has been opened already. ``by`` names a column whose values group the rows.
    Only ``top_label=True`` takes a file with confidences in the predicted class alone. With ``multilabel`` targets are
    0 and 1 for each label, and each label of a row is a yes/no event; ``ignore`` is a target of pixels not to count.

    Attributes:
        name: what to call these predictions.
        place: where they are, for people: the path, and the array where it is one of several.
        is_logits: whether the scores are logits.
        class_names: K names; none of top-label predictions.
        table: its columns.
        rows: how many there are, once `batches` has gone through them.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        probs: str | None = None,
        logits: str | None = None,
        target: str | None = None,
        class_names: Sequence[str] | None = None,
        percent: bool = False,
        file_format: str = "auto",
        needs_target: bool = True,
        top_label: bool = False,
        table: Table | None = None,
        by: str | None = None,
        multilabel: bool = False,
        ignore: int | None = None,
    ) -> None:
        self.rows: int | None = None
        self.by = by
        if file_format not in FORMAT_NAMES:
            raise InvalidValueError(
                f"`file_format` (--format) must be one of {', '.join(FORMAT_NAMES)}, got {file_format!r}."
            )
        self._percent, self._is_percent = percent, percent
        self.path, self.place = Path(path), str(path)
        self.name = self.path.name.split(".")[0] or self.path.name
        is_npy = self.path.suffix.lower() == ".npy"
        self.table = open_table(self.path, target, file_format) if table is None else table
        is_arrays = isinstance(self.table, ArrayTable) and not self.table.is_records
        if is_npy and len(self.table.names) > 1:
            target = self.table.names[1]  # the file beside, named or found
        elif is_npy and needs_target:
            fix = "save x_targets.npy beside x_probs.npy, or name it with `target` (--target)"
            raise InvalidFileError(f"{self.path}: has no file of targets beside it; {fix}.")
        elif target is not None and target not in self.table.names and self.table.names[-1] == "target":
            target = "target"  # from a file of their own
        if multilabel:
            if by is not None:
                raise InvalidValueError(
                    "`by` (--by) cannot go with `multilabel` (--multilabel), which groups by label."
                )
            names = class_names
            events = self._explained(
                lambda: find_events(self.table, probs=probs, logits=logits, target=target, class_names=names)
            )
            self.table, self.by = events, LABEL
            probs, logits, target, class_names = None, None, "target", None
            is_arrays = False
        elif by is not None and by not in self.table.names:
            there = list_names(self.table.names)
            raise InvalidFileError(f"{self.path}: no column {by} to group by; `by` (--by) can be {there}.")
        self._layout: Layout = self._explained(
            lambda: find_layout(
                self.table.names,
                probs=probs,
                logits=logits,
                target=target,
                class_names=class_names if class_names is not None else self.table.class_names,
                numbers_are_names=self.table.class_names is None,  # an archive numbers its own from 0
                is_arrays=is_arrays,
                needs_target=needs_target,
            )
        )
        if is_arrays and not is_npy and not self.is_top_label and probs is None and logits is None:
            self._check_unrivalled()
        found, true = self._layout.scores[0], self._layout.target
        plain = self.table if isinstance(self.table, ArrayTable) and not self.table.is_records else None
        if plain is not None and not self.is_top_label and true is not None and plain.has_pixels(found, true):
            self.table = PixelTable(plain, found, true, ignore)
        elif ignore is not None:
            rule = "`ignore` (--ignore) is for arrays of pixels or tokens"
            raise InvalidFileError(f"{self.path}: {rule}; drop such rows instead.")
        self.is_logits = self._layout.is_logits
        self._numbers = self._layout.numbers
        if self.is_top_label:
            if not top_label:
                raise InvalidFileError(
                    f"{self.path}: holds confidences in the predicted class alone, which only `metacal evaluate` "
                    "reads; give a score for each class."
                )
            self.class_names: tuple[str, ...] = ()
            return
        self.class_names = self._name_classes()
        for name in self.class_names:
            if any(0xD800 <= ord(letter) < 0xE000 for letter in name):  # halves of characters: nothing can write them
                raise InvalidFileError(f"{self.path}: the class name {name!r} is not text; rename it.")
        if len(set(self.class_names)) < self.num_classes:
            twice = next(name for name in self.class_names if self.class_names.count(name) > 1)
            raise InvalidFileError(f"{self.path}: two classes are called {twice}; rename one.")

    def _explained(self, find: Callable[[], T]) -> T:
        """What is found; a complaint names the file."""
        try:
            with readable(self.path):
                return find()
        except BadRow as bad:
            raise InvalidFileError(f"{self.path}: row {bad.row + 1}: {bad.problem}.") from None
        except InvalidFileError:
            raise
        except InvalidValueError as error:
            raise InvalidFileError(f"{self.path}: {error}") from None

    @classmethod
    def models(
        cls, path: str | Path, *, probs: str | None = None, logits: str | None = None, **keywords: Any
    ) -> list["PredictionFile"]:
        """The models in a file: of arrays by name, each ``(n, K)`` that ``probs`` or ``logits`` names; else one.

        The arguments are those of `PredictionFile`. A model that is one of several is called by its array's name.
        """
        pattern, place = logits if probs is None else probs, Path(path)
        if pattern is None or place.suffix.lower() not in (".npz", ".json", ".pt", ".pth", ".safetensors"):
            return [cls(place, probs=probs, logits=logits, **keywords)]
        table = open_table(place)
        if not isinstance(table, ArrayTable) or table.is_records:
            return [cls(place, probs=probs, logits=logits, **keywords)]
        words = [pattern] if pattern in table.names else pattern.split(",")
        matrices = [name for name in table.names if table.is_matrix(name)]
        parts = [match_columns(matrices, word) for word in words if word.strip()]
        names = list(dict.fromkeys(name for part in parts for name in part))
        if len(names) < 2 or not all(parts):
            return [cls(place, probs=probs, logits=logits, table=table, **keywords)]
        found = []
        for name in names:
            kind = {"logits": name} if probs is None else {"probs": name, "logits": logits}
            found.append(cls(place, **kind, table=table, **keywords))
            found[-1].name, found[-1].place = name, f"{place}:{name}"
        return found

    @property
    def has_targets(self) -> bool:
        """Whether the file says what was true."""
        return self._layout.target is not None

    @property
    def is_top_label(self) -> bool:
        """Whether there is only the confidence in the predicted class."""
        return self._layout.is_top_label

    @property
    def num_classes(self) -> int:
        """K; 0 of top-label predictions."""
        return len(self.class_names)

    def describe(self) -> dict[str, Any]:
        """What was read and how that was decided, for JSON; whole once `batches` has gone through the rows."""
        layout, notes = self._layout, []
        if self._is_percent:
            notes.append("percentages, divided by 100")
        if self._numbers != layout.numbers:
            notes.append(f"labels count from 1: there is a {self.num_classes} and no 0")
        if self.is_top_label:
            notes.append("top-label figures only")
        return {
            "file": self.place,
            "rows": self.rows,
            "num_classes": self.num_classes or None,
            "scores": list(layout.scores),
            "kind": layout.kind,
            "decided": layout.decided,
            "target": layout.target,
            "prediction": layout.prediction,
            "correct": layout.correct,
            "notes": notes + list(getattr(self.table, "notes", ())),
        }

    def batches(self, read: int = BATCH_ELEMENTS, chunk: int = CHUNK_ELEMENTS) -> Iterator[Batch]:
        """Yield checked batches; a second thread reads ahead. A file without rows is refused.

        Args:
            read: scores to read at once, if that is at least 1,024 rows.
            chunk: scores of a batch, if that is at least as many.
        """
        layout, first_row = self._layout, 0
        columns = tuple(dict.fromkeys((*layout.columns, *([] if self.by is None else [self.by]))))
        at_once, rows = (max(1024, size // max(self.num_classes, 2)) for size in (read, chunk))
        tables = read_ahead(self.table.batches(columns, at_once, text=layout.target))
        try:
            with closing(tables), readable(self.path):
                for table in tables:
                    if not first_row:
                        self._settle(table)
                    for first in range(0, len(table[columns[0]]), rows):
                        some = {name: column[first : first + rows] for name, column in table.items()}
                        yield self._batch(some)._replace(groups=None if self.by is None else some[self.by])
                        first_row += len(some[columns[0]])
        except BadRow as bad:
            row, unit = first_row + bad.row, "row"
            if isinstance(self.table, EventTable | PixelTable):
                row, unit = row // self.table.answers, self.table.unit
            hint = " (or leave it out with --ignore)" if unit == "image" and "classes are" in bad.problem else ""
            raise InvalidFileError(f"{self.path}: {unit} {row + 1}: {bad.problem}{hint}.") from None
        except InvalidFileError:
            raise
        except InvalidValueError as error:
            raise InvalidFileError(f"{self.path}: {error}") from None
        if not first_row:
            raise InvalidFileError(f"{self.path}: holds no rows, only a header; write the predictions again.")
        self.rows = first_row

    def _settle(self, table: dict[str, Column]) -> None:
        """Decide by the first rows, where only one answer is possible, on percentages and on labels from 1 to K."""
        layout = self._layout
        first = {name: column[:1] for name, column in table.items()}
        if self.is_top_label:
            self._is_percent = self._percent or are_percentages(table[layout.scores[0]])
        elif not self._percent and not self.is_logits and not self._is_single:
            row = np.concatenate([np.ravel(read_numbers(name, first[name])) for name in layout.scores])
            total = 100.0 * row_sum_tolerance(torch.float32)
            self._is_percent = len(row) > 1 and bool(row.min() >= 0 and abs(float(row.sum()) - 100.0) <= total)
        names = layout.class_names or ()
        if layout.target and not self.is_top_label and layout.numbers is None and not any(map(is_number, names)):
            numbers = to_numbers(table[layout.target])
            if numbers is not None and numbers.min() >= 1 and numbers.max() == self.num_classes:
                self._numbers = tuple(range(1, self.num_classes + 1))

    def _batch(self, table: dict[str, Column]) -> Batch:
        layout, target = self._layout, self._layout.target
        if self.is_top_label:
            confidences = read_confidences(table[layout.scores[0]], layout.scores[0], self._is_percent)
            if layout.correct:
                correct = read_correct(table[layout.correct], layout.correct)
            else:
                correct = find_correct(table[layout.prediction or ""], table[target or ""])
            return Batch(torch.from_numpy(confidences).unsqueeze(1), torch.from_numpy(correct).long())
        if target is None:
            return Batch(self._scores(table), None)
        column = table[target]
        if self._numbers != layout.numbers:  # by number alone, where names might be numbers too
            column = column if (numbers := to_numbers(column)) is None else numbers
        labels = class_numbers(column, self.class_names, self._numbers, target, is_binary=self._is_single)
        return Batch(self._scores(table), torch.from_numpy(labels))

    def _check_unrivalled(self) -> None:
        """Raise if other arrays of the archive are like the one that was found by its name: which is meant?"""
        assert isinstance(self.table, ArrayTable)
        found = self._layout.scores[0]
        alike = [name for name in self.table.alike(found) if name != self._layout.target]
        if self.table.is_matrix(found) and len(alike) > 1:
            raise InvalidFileError(
                f"{self.path}: several arrays could be the scores ({', '.join(alike)}); name one, or several with "
                "commas to compare them, with `probs` (--probs) or `logits` (--logits)."
            )

    def _name_classes(self) -> tuple[str, ...]:
        """Names by the layout; for a single column, which may hold lists, by the first row."""
        layout, self._is_single = self._layout, False
        if len(layout.scores) > 1:
            assert layout.class_names is not None
            return layout.class_names
        first = self._explained(lambda: next(iter(self.table.batches(layout.scores, 1)), None))
        if first is None or not len(first[layout.scores[0]]):
            raise InvalidFileError(f"{self.path}: holds no rows, only a header; write the predictions again.")
        column = first[layout.scores[0]]
        shape = () if isinstance(column, Strings) else column.shape[1:]
        num_classes, self._is_single = shape[0] if shape else 2, not shape
        if len(shape) > 1 or num_classes < 2:
            raise InvalidFileError(
                f"{self.path}: {layout.scores[0]} must have a row of K scores for each sample, got shape "
                f"(n, {', '.join(map(str, shape))}); save it as (n, K)."
            )
        names = layout.class_names
        if names is None and layout.positive is not None and not shape:
            names = (f"not {layout.positive}", layout.positive)
        if names is not None and len(names) != num_classes:
            raise InvalidFileError(
                f"{self.path}: {layout.scores[0]} has {num_classes} classes but {len(names)} names were given; "
                "give one name a class with `class_names` (--class-names)."
            )
        return tuple(str(number) for number in range(num_classes)) if names is None else names

    def _scores(self, table: dict[str, Column]) -> Tensor:
        names = self._layout.scores
        arrays = [read_numbers(name, table[name]) for name in names]
        is_half = any(array.dtype == np.float16 for array in arrays)
        dtype = np.float32 if all(array.dtype in (np.float16, np.float32) for array in arrays) else np.float64
        if self._is_percent:
            arrays = [array / 100.0 for array in arrays]
        if len(names) == 1:
            scores = torch.from_numpy(np.array(arrays[0], dtype=dtype))
            if scores.ndim == 1:
                check_scores(scores.unsqueeze(1), self.is_logits, names, is_single=True)
                return torch.stack((torch.zeros_like(scores) if self.is_logits else 1.0 - scores, scores)).t()
            if scores.shape[1] != self.num_classes:
                raise BadRow(0, f"`{names[0]}` has {scores.shape[1]} values, others have {self.num_classes}")
            names = tuple(f"{names[0]}[{k}]" for k in range(self.num_classes))
        else:
            for name, array in zip(names, arrays, strict=True):
                if array.ndim > 1:
                    raise BadRow(0, f"{name} holds a row of scores, not that of one class; name it alone")
            stacked = np.empty((len(names), len(arrays[0])), dtype=dtype)
            for row, array in zip(stacked, arrays, strict=True):
                row[...] = array
            scores = torch.from_numpy(stacked).t()
        check_scores(scores, self.is_logits, names, is_half=is_half)
        return scores / scores.sum(dim=1, keepdim=True) if is_half and not self.is_logits else scores
