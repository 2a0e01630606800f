"""A prediction file as batches of checked scores and class numbers; every error names file, row or column."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation.columns import class_numbers, find_layout, list_names, match_columns
from metacal.evaluation.confidences import are_percentages, find_correct, read_confidences, read_correct
from metacal.evaluation.tables import (
    DROP,
    BadRow,
    Column,
    Strings,
    Table,
    is_number,
    join_columns,
    open_table,
    read_ahead,
    read_numbers,
    readable,
    to_numbers,
)
from metacal.evaluation.unrolled import LABEL, LabelledTable, PixelTable, find_events
from metacal.functional.inputs import first_bad_score, row_sum_tolerance, score_range

FORMAT_NAMES = ("auto", "table", "lm-eval", "inspect", "pipeline", "samples")
NO_ROWS = "holds no rows, only a header; write the predictions again"
BATCH_ELEMENTS = 2**21
"""Numbers read at once: 16 MB of float32."""

CHUNK_ELEMENTS = 2**18
"""Scores handled at once: they stay in cache between the passes over them."""


class Batch(NamedTuple):
    """A batch of rows.

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
    """An opened file with known columns; its rows can be read in batches any number of times.

    The arguments are those of `read_predictions`; a file without a target is refused if it ``needs_target``, and
    ``table`` is the file if it has been opened already. ``by`` names a column whose values group the rows.
    Only ``top_label=True`` takes a file with confidences in the predicted class alone. With ``multilabel`` targets are
    0 and 1 for each label, and each label of a row is a yes/no event; ``ignore`` is a target of pixels not to count.
    ``drop_unlabelled`` leaves out rows without a target.

    Attributes:
        name: what to call these predictions.
        place: where they are, for people: the path, and the array where it is one of several.
        is_logits: whether the scores are logits.
        is_top_label: whether there is only the confidence in the predicted class.
        has_targets: whether the file says what was true.
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
        drop_unlabelled: bool = False,
    ) -> None:
        if file_format not in FORMAT_NAMES:
            names = ", ".join(FORMAT_NAMES)
            raise InvalidValueError(f"`file_format` (--format) must be one of {names}, got {file_format!r}.")
        if multilabel and by is not None:
            raise InvalidValueError("`by` (--by) cannot go with `multilabel` (--multilabel), which groups by label.")
        self.rows: int | None = None
        self.by = LABEL if multilabel else by
        self.path, self.place = Path(path), str(path)
        self.name = self.path.name.split(".")[0] or self.path.name
        self._percent = self._is_percent = percent
        self.table = open_table(self.path, target, file_format) if table is None else table
        is_npy = self.path.suffix.lower() == ".npy"
        if is_npy and needs_target and self.table.target is None:
            fix = "save x_targets.npy beside x_probs.npy, or name it with `target` (--target)"
            raise InvalidFileError(f"{self.path}: has no file of targets beside it; {fix}.")
        with self._explained():
            if multilabel:
                columns = {"probs": probs, "logits": logits, "target": self.table.target or target}
                self.table = find_events(self.table, class_names=class_names, **columns)
                probs = logits = class_names = None
            if self.by is not None and self.by not in self.table.names:
                there = list_names(self.table.names)
                raise InvalidValueError(f"no column {by} to group by; `by` (--by) can be {there}.")
            self._layout = find_layout(
                self.table.names,
                probs=probs,
                logits=logits,
                target=self.table.target or target,
                class_names=class_names if class_names is not None else self.table.class_names,
                numbers_are_names=self.table.class_names is None,  # an archive numbers its own from 0
                is_arrays=bool(self.table.arrays),
                needs_target=needs_target,
            )
            self._numbers = self._layout.numbers
            self.is_logits, self.is_top_label = self._layout.is_logits, self._layout.is_top_label
            self.has_targets = self._layout.target is not None
            if probs is None and logits is None and not is_npy:
                self._check_unrivalled()
            if not self.is_top_label and self.table.has_pixels(self._layout.scores[0], self._layout.target or ""):
                self.table = PixelTable(self.table, self._layout.scores[0], self._layout.target or "", ignore)
            elif ignore is not None:
                raise InvalidValueError(
                    "`ignore` (--ignore) is for arrays of pixels or tokens; drop such rows instead."
                )
            if drop_unlabelled and self._layout.target is not None and not isinstance(self.table, PixelTable):
                self.table = LabelledTable(self.table, self._layout.target)
            if self.is_top_label and not top_label:
                raise InvalidValueError(
                    "holds confidences in the predicted class alone, which only `metacal evaluate` reads; give a score "
                    "for each class."
                )
            self.class_names = () if self.is_top_label else self._name_classes()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the file name to every error."""
        try:
            with readable(self.path):
                yield
        except BadRow as bad:
            is_ignorable = isinstance(self.table, PixelTable) and "classes are" in bad.problem
            is_missing = bad.problem.endswith(f"has no value; {DROP}") and bad.problem[0] != "`"
            hint = " (or leave it out with --ignore)" if is_ignorable else ""
            if is_missing and not bad.problem.startswith("the prediction"):
                hint = ", or pass `drop_unlabelled` (`metacal evaluate --drop-unlabelled`)"
            raise InvalidFileError(f"{self.path}: {self.table.place(bad.row)}: {bad.problem}{hint}.") from None
        except InvalidFileError:
            raise
        except InvalidValueError as error:
            raise InvalidFileError(f"{self.path}: {error}") from None

    @classmethod
    def models(
        cls, path: str | Path, *, probs: str | None = None, logits: str | None = None, **keywords: Any
    ) -> list["PredictionFile"]:
        """The models in a file: each array ``(n, K)`` that ``probs`` or ``logits`` names; otherwise one.

        The arguments are those of `PredictionFile`. A model that is one of several is called by its array's name.
        """
        pattern, place, table = logits if probs is None else probs, Path(path), None
        if pattern is not None and place.suffix.lower() in (".npz", ".json", ".pt", ".pth", ".safetensors"):
            table = open_table(place)
            words = [pattern] if pattern in table.names else pattern.split(",")
            matrices = [name for name, array in table.arrays.items() if np.ndim(array) > 1]  # type: ignore[arg-type]
            parts = [match_columns(matrices, word) for word in words if word.strip()]
            names = list(dict.fromkeys(name for part in parts for name in part))
            if len(names) > 1 and all(parts):
                found = []
                for name in names:
                    kind = {"logits": name} if probs is None else {"probs": name, "logits": logits}
                    found.append(cls(place, **kind, table=table, **keywords))
                    found[-1].name, found[-1].place = name, f"{place}:{name}"
                return found
            table = table if table.arrays else None
        return [cls(place, probs=probs, logits=logits, table=table, **keywords)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of scores and target."""
        return self._layout.columns

    @property
    def num_classes(self) -> int:
        """K; 0 for top-label predictions."""
        return len(self.class_names)

    def describe(self) -> dict[str, Any]:
        """Describe for JSON what was read and how it was determined; complete after `batches` has read all rows."""
        layout = self._layout
        notes = {
            "percentages, divided by 100": self._is_percent,
            f"labels count from 1: there is a {self.num_classes} and no 0": self._numbers != layout.numbers,
            "top-label figures only": self.is_top_label,
        }
        return {
            "file": self.place,
            "rows": self.rows,
            "num_classes": self.num_classes or None,
            "scores": list(layout.scores),
            **{name: getattr(layout, name) for name in ("kind", "decided", "target", "prediction", "correct")},
            "notes": [*(note for note, holds in notes.items() if holds), *self.table.notes],
        }

    def batches(self, read: int = BATCH_ELEMENTS, chunk: int = CHUNK_ELEMENTS) -> Iterator[Batch]:
        """Yield checked batches; a second thread reads ahead. A file without rows is refused.

        Args:
            read: scores to read at once, if that is at least 1,024 rows.
            chunk: scores of a batch, if that is at least as many.
        """
        columns = tuple(dict.fromkeys((*self._layout.columns, *([] if self.by is None else [self.by]))))
        at_once, rows = (max(1024, size // max(self.num_classes, 2)) for size in (read, chunk))
        first_row = 0
        with (
            self._explained(),
            closing(read_ahead(self.table.batches(columns, at_once, text=self._layout.target))) as tables,
        ):
            for table in tables:
                if not first_row:
                    self._settle(table)
                for first in range(0, len(table[columns[0]]), rows):
                    some = {name: column[first : first + rows] for name, column in table.items()}
                    try:
                        batch = self._batch(some)
                    except BadRow as bad:
                        raise BadRow(first_row + bad.row, bad.problem) from None
                    yield batch._replace(groups=None if self.by is None else some[self.by])
                    first_row += len(some[columns[0]])
            if not first_row:
                raise InvalidFileError(f"{self.path}: {NO_ROWS}.")
        self.rows = first_row

    def ids(self) -> NDArray[np.str_] | None:
        """Return the column ``id`` as text; None if there is none."""
        found = [name for name in self.table.names if name.lower() == "id"]
        if len(found) != 1:
            return None
        with readable(self.path):
            column = join_columns([batch[found[0]] for batch in self.table.batches(found, 2**16, text=found[0])])
        if isinstance(column, Strings):
            return np.array([*column.values, ""])[column.codes]
        is_whole = column.dtype.kind == "f" and bool((column == np.floor(column)).all())
        return (column.astype(np.int64) if is_whole else column).astype(str)

    def _settle(self, table: dict[str, Column]) -> None:
        """Decide from the first rows, if unambiguous, on percentages and on labels from 1 to K."""
        layout = self._layout
        if self.is_top_label:
            self._is_percent = self._percent or are_percentages(table[layout.scores[0]])
            return
        if not self._percent and not self.is_logits and not self._is_single:
            row = np.concatenate([np.ravel(read_numbers(name, table[name][:1])) for name in layout.scores])
            tolerance = 100.0 * row_sum_tolerance(torch.float32)
            self._is_percent = len(row) > 1 and bool(row.min() >= 0 and abs(float(row.sum()) - 100.0) <= tolerance)
        if layout.target and layout.numbers is None and not any(map(is_number, layout.class_names or ())):
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
        """Raise if other arrays of the archive have the same shape as the one found by name."""
        floats = {
            name: array.shape
            for name, array in self.table.arrays.items()
            if not isinstance(array, Strings) and array.dtype.kind == "f" and array.ndim > 1
        }
        shape = None if self.is_top_label else floats.get(self._layout.scores[0])
        alike = [name for name, other in floats.items() if other == shape and name != self._layout.target]
        if shape is not None and len(alike) > 1:
            raise InvalidValueError(
                f"several arrays could be the scores ({', '.join(alike)}); name one, or several with commas to compare "
                "them, with `probs` (--probs) or `logits` (--logits)."
            )

    def _name_classes(self) -> tuple[str, ...]:
        """Return class names from the layout; for a single column, which may hold lists, from the first row."""
        layout, self._is_single = self._layout, False
        names, score = layout.class_names, layout.scores[0]
        if len(layout.scores) == 1:
            first = next(iter(self.table.batches(layout.scores, 1)), {score: np.empty(0)})[score]
            if not len(first):
                raise InvalidValueError(f"{NO_ROWS}.")
            shape = () if isinstance(first, Strings) else first.shape[1:]
            num_classes, self._is_single = shape[0] if shape else 2, not shape
            if len(shape) > 1 or num_classes < 2:
                found = f"(n, {', '.join(map(str, shape))})"
                rule = f"{score} must have a row of K scores for each sample"
                raise InvalidValueError(f"{rule}, got shape {found}; save it as (n, K).")
            if names is None and layout.positive is not None and not shape:
                names = (f"not {layout.positive}", layout.positive)
            names = tuple(map(str, range(num_classes))) if names is None else names
            if len(names) != num_classes:
                raise InvalidValueError(
                    f"{score} has {num_classes} classes but {len(names)} names were given; give one name a class with "
                    "`class_names` (--class-names)."
                )
        assert names is not None
        for name in names:
            if any(0xD800 <= ord(letter) < 0xE000 for letter in name):  # halves of characters: nothing can write them
                raise InvalidValueError(f"the class name {name!r} is not text; rename it.")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValueError(f"two classes are called {twice}; rename one.")
        return names

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
                _check_scores(scores.unsqueeze(1), self.is_logits, names, is_single=True)
                return torch.stack((torch.zeros_like(scores) if self.is_logits else 1.0 - scores, scores)).t()
            if scores.shape[1] != self.num_classes:
                raise BadRow(0, f"`{names[0]}` has {scores.shape[1]} values, others have {self.num_classes}")
            names = tuple(f"{names[0]}[{k}]" for k in range(self.num_classes))
        else:
            for name, array in zip(names, arrays, strict=True):
                if array.ndim > 1:
                    raise BadRow(0, f"{name} holds a row of scores, not that of one class; name it alone")
            scores = torch.from_numpy(np.stack(arrays, dtype=dtype, casting="same_kind")).t()
        _check_scores(scores, self.is_logits, names, is_half=is_half)
        return scores / scores.sum(dim=1, keepdim=True) if is_half and not self.is_logits else scores


def _check_scores(
    scores: Tensor, is_logits: bool, names: Sequence[str], *, is_half: bool = False, is_single: bool = False
) -> None:
    """Raise BadRow unless logits ``(m, K)`` are finite, or probabilities lie in [0, 1] and sum to 1.

    Those that came in half precision may be further off; a binary model's single column is not added up.
    """
    tolerance = 0.0 if is_single else row_sum_tolerance(torch.float16 if is_half else scores.dtype)
    if score_range(scores, tolerance, is_logits=is_logits, is_events=is_single) is not None:
        return
    bad = first_bad_score(scores, tolerance, is_logits=is_logits, is_events=is_single)
    fix = "if these are raw scores say so with `logits` (--logits), else divide each row by its sum"
    if bad.column is None:
        raise BadRow(bad.row, f"probabilities sum to {bad.value:.6g}, not 1; {fix}")
    if is_single:
        fix = "pass `percent` (--percent) if these are percentages, `logits` (--logits) if raw scores"
    rule = f"a probability in [0, 1]; {fix}" if np.isfinite(bad.value) else f"a finite number; {DROP}"
    raise BadRow(bad.row, f"column {names[bad.column]} holds {bad.value:.6g}, not {rule}")
