"""Top-label columns: a confidence as a number, a percentage or a word, and whether the predicted class was right."""

import numpy as np
from numpy.typing import NDArray

from metacal.evaluation.columns import TRUTHS
from metacal.evaluation.tables import DROP, BadRow, Column, Strings, is_number

_MEANINGS = {
    0.99: ("certain",),
    0.95: ("almost certain",),
    0.9: ("very likely", "highly likely", "very high"),
    0.75: ("likely", "probable", "high"),
    0.5: ("about even", "medium", "moderate", "unsure"),
    0.25: ("unlikely", "low"),
    0.1: ("very unlikely", "highly unlikely", "very low"),
    0.05: ("almost no chance",),
}
WORDS = {word: value for value, words in _MEANINGS.items() for word in words}
"""What a confidence in words stands for."""


def read_confidences(column: Column, name: str, percent: bool = False) -> NDArray[np.float64]:
    """Confidences in [0, 1]: fractions, percentages (``percent``, or written with ``%``), or `WORDS`.

    Raises:
        BadRow: one is missing, outside the range or an unknown word.

    Examples:
        >>> read_confidences(Strings(np.array([0, 1, 2]), ("85%", "0.5", "Almost certain")), "confidence").tolist()
        [0.85, 0.5, 0.95]
    """
    scale = 100.0 if percent else 1.0
    if isinstance(column, Strings):
        known = np.array([_from_text(value.strip().lower(), scale) for value in column.values] + [np.nan])
        values = known[column.codes]
        if len(unknown := np.flatnonzero(np.isnan(values))):
            code = int(column.codes[unknown[0]])
            found = repr(column.values[code]) if code >= 0 else "nothing"
            rule = f"not a number, a percentage or one of: {', '.join(WORDS)}"
            raise BadRow(int(unknown[0]), f"{name} holds {found}, {rule}; {DROP}")
    elif column.ndim != 1 or column.dtype.kind not in "fiub":
        raise BadRow(0, f"{name} must hold one confidence a row; write a number between 0 and 1")
    else:
        values = column.astype(np.float64) / scale
    if len(bad := np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))):
        fix = "pass `percent` (--percent) if these are percentages, else fix or drop the row"
        raise BadRow(int(bad[0]), f"{name} is {values[bad[0]]:g}, not a confidence in [0, 1]; {fix}")
    return values


def _from_text(text: str, scale: float) -> float:
    if is_number(text):
        return float(text) / scale
    if text.endswith("%") and is_number(text[:-1]):
        return float(text[:-1]) / 100.0
    return WORDS.get(text, np.nan)


def are_percentages(column: Column) -> bool:
    """Whether confidences can only be percentages: all lie in [0, 100], and one above 1."""
    values = column
    if isinstance(values, Strings):
        values = np.array([float(value) for value in values.values if is_number(value)])
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "fiu":
        return False
    return bool(values.min() >= 0 and 1 < values.max() <= 100)


def find_correct(predicted: Column, target: Column) -> NDArray[np.bool_]:
    """Whether each prediction equals the target, by name or by number, ignoring case and surrounding spaces."""
    sides = [_labels(predicted), _labels(target)]
    for (values, codes), name in zip(sides, ("prediction", "target"), strict=True):
        if len(missing := np.flatnonzero(np.array([value == "" for value in values], dtype=bool)[codes])):
            raise BadRow(int(missing[0]), f"the {name} has no value; {DROP}")
    numbers = {value: number for number, value in enumerate(dict.fromkeys(sides[0][0] + sides[1][0]))}
    left, right = (np.array([numbers[value] for value in values])[codes] for values, codes in sides)
    return np.asarray(left == right)


def read_correct(column: Column, name: str, per_row: int = 1) -> NDArray[np.bool_]:
    """Read booleans, or 1 and 0; a row may have several values."""
    words = {"1": True, "0": False, TRUTHS[1]: True, TRUTHS[0]: False}
    values, codes = _labels(column)
    if len(unknown := np.flatnonzero(np.array([value not in words for value in values], dtype=bool)[codes])):
        value = values[int(codes[unknown[0]])]
        raise BadRow(int(unknown[0]) // per_row, f"{name} is {value!r}, neither true nor false; {DROP}")
    return np.array([words.get(value, False) for value in values])[codes]


def _labels(column: Column) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct values as normalised text and each row's index among them; missing values are empty."""
    if isinstance(column, Strings):
        return [*(_spell(value) for value in column.values), ""], column.codes
    if column.ndim != 1:
        raise BadRow(0, "a label has several values; give one a row")
    values, codes = np.unique(column, return_inverse=True)
    return [_spell(str(value)) if value == value else "" for value in values.tolist()], codes.reshape(-1)


def _spell(value: str) -> str:
    text = value.strip().lower()
    return str(int(float(text))) if is_number(text) and float(text).is_integer() else text
