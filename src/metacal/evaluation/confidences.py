"""Top-label columns: a confidence as a number, a percentage or a word, and whether the predicted class was right."""

import numpy as np
from numpy.typing import NDArray

from metacal.evaluation.checks import DROP, TRUTHS
from metacal.evaluation.tables import BadRow, Column, Strings, is_number

WORDS = {
    "certain": 0.99,
    "almost certain": 0.95,
    "very likely": 0.9,
    "highly likely": 0.9,
    "very high": 0.9,
    "likely": 0.75,
    "probable": 0.75,
    "high": 0.75,
    "about even": 0.5,
    "medium": 0.5,
    "moderate": 0.5,
    "unsure": 0.5,
    "unlikely": 0.25,
    "low": 0.25,
    "very unlikely": 0.1,
    "highly unlikely": 0.1,
    "very low": 0.1,
    "almost no chance": 0.05,
}
"""What a confidence in words stands for."""


def read_confidences(column: Column, name: str, percent: bool | None = None) -> NDArray[np.float64]:
    """Confidences in [0, 1]: fractions, percentages (``percent``, or written with ``%``), or `WORDS`.

    Raises:
        BadRow: one is missing, outside the range or an unknown word.

    Examples:
        >>> read_confidences(Strings(np.array([0, 1, 2]), ("85%", "0.5", "Almost certain")), "confidence").tolist()
        [0.85, 0.5, 0.95]
    """
    if not isinstance(column, Strings):
        if column.ndim != 1 or column.dtype.kind not in "fiub":
            raise BadRow(0, f"{name} must hold one confidence a row; write a number between 0 and 1")
        return _check(column.astype(np.float64) / (100.0 if percent else 1.0), name)
    values = np.array([_from_text(value, percent) for value in column.values] + [np.nan])
    unknown = np.flatnonzero(np.isnan(values[column.codes]))
    if len(unknown):
        code = int(column.codes[unknown[0]])
        found = repr(column.values[code]) if code >= 0 else "nothing"
        words = ", ".join(WORDS)
        raise BadRow(int(unknown[0]), f"{name} holds {found}, not a number, a percentage or one of: {words}; {DROP}")
    return _check(values[column.codes], name)


def are_percentages(column: Column) -> bool:
    """Whether confidences can only be percentages: all lie in [0, 100], and one above 1."""
    if isinstance(column, Strings):
        values = np.array([float(value) for value in column.values if is_number(value)])
    else:
        values = column
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "fiu":
        return False
    return bool(values.min() >= 0 and 1 < values.max() <= 100)


def find_correct(predicted: Column, target: Column) -> NDArray[np.bool_]:
    """Whether each prediction is the target, both by name or by number; spaces around names and case do not count."""
    sides = []
    for column, name in ((predicted, "the prediction"), (target, "the target")):
        values, codes = _labels(column)
        missing = np.flatnonzero(np.array([value == "" for value in values], dtype=bool)[codes])
        if len(missing):
            raise BadRow(int(missing[0]), f"{name} has no value; {DROP}")
        sides.append((values, codes))
    numbers = {value: number for number, value in enumerate(dict.fromkeys(sides[0][0] + sides[1][0]))}
    left, right = (np.array([numbers[value] for value in values])[codes] for values, codes in sides)
    same: NDArray[np.bool_] = left == right
    return same


def read_correct(column: Column, name: str, per_row: int = 1) -> NDArray[np.bool_]:
    """True and false, 1 and 0; so many values are of one row."""
    words = {"1": True, "0": False, TRUTHS[1]: True, TRUTHS[0]: False}
    values, codes = _labels(column)
    unknown = np.flatnonzero(np.array([value not in words for value in values], dtype=bool)[codes])
    if len(unknown):
        value = values[int(codes[unknown[0]])]
        raise BadRow(int(unknown[0]) // per_row, f"{name} is {value!r}, neither true nor false; {DROP}")
    return np.array([words.get(value, False) for value in values])[codes]


def _labels(column: Column) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct values as text in one spelling, and each row's place among them; a missing one is empty."""
    if isinstance(column, Strings):
        return [*(_spell(value) for value in column.values), ""], column.codes
    if column.ndim != 1:
        raise BadRow(0, "a label has several values; give one a row")
    values, codes = np.unique(column, return_inverse=True)
    return [_spell(str(value)) if value == value else "" for value in values.tolist()], codes.reshape(-1)


def _spell(value: str) -> str:
    text = value.strip().lower()
    return str(int(float(text))) if is_number(text) and float(text).is_integer() else text


def _from_text(value: str, percent: bool | None) -> float:
    text = value.strip().lower()
    if is_number(text):
        return float(text) / (100.0 if percent else 1.0)
    if text.endswith("%") and is_number(text[:-1]):
        return float(text[:-1]) / 100.0
    return WORDS.get(text, np.nan)


def _check(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
    if len(bad):
        fix = "pass `percent` (--percent) if these are percentages, else fix or drop the row"
        raise BadRow(int(bad[0]), f"{name} is {values[bad[0]]:g}, not a confidence in [0, 1]; {fix}")
    return values
