"""What the values of a prediction file must be: scores that are probabilities or logits, targets that are classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.evaluation.tables import BadRow, Column, Strings, is_number
from metacal.functional.inputs import first_bad_score, row_sum_tolerance, score_range

TRUTHS = ("false", "true")
DROP = "fix or drop the row"


def check_scores(
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
    single = "pass `percent` (--percent) if these are percentages, `logits` (--logits) if raw scores"
    is_finite = bool(np.isfinite(bad.value))
    rule = f"a probability in [0, 1]; {single if is_single else fix}" if is_finite else f"a finite number; {DROP}"
    raise BadRow(bad.row, f"column {names[bad.column]} holds {bad.value:.6g}, not {rule}")


def class_numbers(
    column: Column,
    class_names: Sequence[str],
    numbers: Sequence[int] | None = None,
    name: str = "target",
    *,
    is_binary: bool = False,
) -> NDArray[np.int64]:
    """Class numbers 0..K-1 of a column that holds names (else true and false, else integers), or numbers.

    Args:
        column: text, integers, whole floats or booleans. True and false are the classes of these names, or 1 and 0 if
            the two classes are numbered or ``is_binary``: the scores are one column, that of "true".
        class_names: K names.
        numbers: integer k stands for the class at the position of k in here; None if k is the position.
        name: of the column, for messages.
        is_binary: see above.

    Raises:
        BadRow: a target is missing, unknown or out of range.

    Examples:
        >>> import numpy as np
        >>> class_numbers(np.array([2, 0]), ["a", "b", "c"]).tolist()
        [2, 0]
        >>> class_numbers(Strings(np.array([0, 1, 0]), ("dog", "cat")), ["cat", "dog"]).tolist()
        [1, 0, 1]
    """
    if not isinstance(column, Strings) and column.dtype.kind == "b" and column.ndim == 1:
        column = Strings(column.astype(np.int64), TRUTHS)
    if isinstance(column, Strings):
        return _from_text(column, class_names, numbers, name, is_binary)
    if column.ndim != 1:
        raise BadRow(
            0,
            f"{name} has {column.shape[1]} values a row, not one; of one-hot targets save the argmax over classes, or "
            "pass `multilabel` (--multilabel) if each is yes or no",
        )
    if column.dtype.kind == "f":
        return _from_numbers(_whole(column, name), class_names, numbers, name)
    if column.dtype.kind not in "iu":
        raise BadRow(0, f"{name} holds {column.dtype}, not class names or integers; write it as either")
    return _from_numbers(column.astype(np.int64), class_names, numbers, name)


def read_numbers(name: str, column: Column) -> NDArray[Any]:
    """Numbers of a column of scores, written as text or as such; BadRow names one that is none."""
    if isinstance(column, Strings):
        for row, code in enumerate(column.codes):
            if code < 0 or not is_number(column.values[code]):
                found = "nothing" if code < 0 else f"{column.values[code]!r}"
                fix = DROP if code < 0 else _as_number(column.values[code])
                raise BadRow(row, f"column {name} holds {found}, not a number; {fix}")
        return np.array([float(column.values[code]) for code in column.codes])
    if column.dtype.kind not in "fiub":
        raise BadRow(0, f"column {name} holds {column.dtype}, not numbers; write it as numbers")
    return column


def _as_number(text: str) -> str:
    """What to do with a text that is meant as a number."""
    if text.strip().startswith(("[", "(", "{")):
        return "a list written as text; save it as .parquet or .jsonl, or a column for each class"
    if is_number(text.strip().rstrip("%")):
        return "write it without the % sign"
    return "write it with a decimal point" if is_number(text.replace(",", ".")) else DROP


def to_numbers(column: Column) -> NDArray[Any] | None:
    """Numbers of a column that holds nothing else, as text or as such; None of any other."""
    if not isinstance(column, Strings):
        return column if column.ndim == 1 and len(column) and column.dtype.kind in "fiu" else None
    if not len(column) or column.codes.min() < 0 or not all(map(is_number, column.values)):
        return None
    return np.array([float(value) for value in column.values])[column.codes]


def _whole(column: NDArray[Any], name: str) -> NDArray[np.int64]:
    with np.errstate(invalid="ignore"):
        whole = column.astype(np.int64)
    bad = np.flatnonzero(whole != column)  # NaN is equal to nothing
    if len(bad):
        value = column[bad[0]]
        found = "no value" if np.isnan(value) else f"{value:g}, which is not a class number"
        raise BadRow(int(bad[0]), f"{name} has {found}; {DROP}")
    return whole


def _from_numbers(
    values: NDArray[np.int64], class_names: Sequence[str], numbers: Sequence[int] | None, name: str
) -> NDArray[np.int64]:
    if numbers is not None:
        known = np.asarray(numbers, dtype=np.int64)
        order = np.argsort(known)
        places: NDArray[np.int64] = order[np.searchsorted(known, values, sorter=order).clip(0, len(known) - 1)]
        bad = np.flatnonzero(known[places] != values)
        allowed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    else:
        places = values
        # Read as unsigned, a negative number is larger than any class: one pass settles both ends.
        is_inside = not len(values) or values.view(np.uint64).max() < len(class_names)
        bad = values[:0] if is_inside else np.flatnonzero((values < 0) | (values >= len(class_names)))
        allowed = f"0..{len(class_names) - 1}"
    if len(bad):
        raise BadRow(int(bad[0]), f"{name} is {values[bad[0]]}, classes are {allowed}; fix the target or its numbering")
    return places


def _from_text(
    column: Strings, class_names: Sequence[str], numbers: Sequence[int] | None, name: str, is_binary: bool
) -> NDArray[np.int64]:
    missing = np.flatnonzero(column.codes < 0)
    if len(missing):
        raise BadRow(int(missing[0]), f"{name} has no value; {DROP}")
    places = {class_name: place for place, class_name in enumerate(class_names)}
    by_name = np.array([places.get(value, -1) for value in column.values] or [0], dtype=np.int64)
    found = by_name[column.codes]
    unknown = np.flatnonzero(found < 0)
    if not len(unknown):
        return found
    if all(value.lower() in TRUTHS for value in column.values):
        truths = np.array([TRUTHS.index(value.lower()) for value in column.values], dtype=np.int64)
        spelled = [class_name.lower() for class_name in class_names]
        if all(spelled.count(truth) == 1 for truth in TRUTHS):
            return np.array([spelled.index(truth) for truth in TRUTHS], dtype=np.int64)[truths[column.codes]]
        if len(class_names) == 2 and (is_binary or numbers is not None or spelled == ["0", "1"]):
            return _from_numbers(truths[column.codes], class_names, numbers, name)
    try:
        as_numbers = np.array([float(value) for value in column.values])
    except ValueError:
        value = column.values[int(column.codes[unknown[0]])]
        known = ", ".join(map(repr, class_names[:8])) + (", ..." if len(class_names) > 8 else "")
        raise BadRow(
            int(unknown[0]),
            f"{name} is {value!r}, not one of the classes {known}; fix it, or name the classes in the order of the "
            "scores with `class_names` (--class-names)",
        ) from None
    return _from_numbers(_whole(as_numbers[column.codes], name), class_names, numbers, name)
