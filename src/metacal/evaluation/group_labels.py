"""Which group each row is in: values of a column as groups, whatever they are and however many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.evaluation.tables import Column, Strings

FEWEST = 10
"""Rows below which a group is counted with the others of its kind."""

MOST = 50
"""Groups; smaller ones are counted together."""

MOST_NUMBERS = 20
"""Different numbers in a column that are groups of their own; more are cut into `PARTS` of equal size."""

PARTS = 5
MISSING, OTHER = "(missing)", "(other)"


@dataclass(frozen=True)
class GroupLabels:
    """Which group each row is in.

    Attributes:
        column: what the groups are values of.
        codes: int64 ``(n,)``: places in ``names``.
        names: of the groups.
        notes: how the groups were made, where they are not the values themselves.
    """

    column: str
    codes: Tensor
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def join_columns(parts: Sequence[Column]) -> Column:
    """Batches of one column as one; numbers become text where another batch has text."""
    if not any(isinstance(part, Strings) for part in parts):
        return np.concatenate([part for part in parts if not isinstance(part, Strings)])
    places: dict[str, int] = {}
    codes = []
    for part in parts:
        text = part if isinstance(part, Strings) else _spelled(part)
        known = np.array([places.setdefault(value, len(places)) for value in text.values] + [-1], dtype=np.int64)
        codes.append(known[text.codes])
    return Strings(np.concatenate(codes), tuple(places))


def as_column(values: Any) -> Column:
    """Values of any array, list or pandas object; None and NaN are missing."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf" and array.ndim == 1:
        return array
    array = array.astype(str) if array.dtype.kind == "M" else array
    if array.ndim != 1:
        raise InvalidValueError(f"`by` must have one value a row, got shape {array.shape}.")
    texts = [None if value is None or value != value else str(value) for value in array.tolist()]
    places = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    codes = np.array([-1 if text is None else places[text] for text in texts], dtype=np.int64)
    return Strings(codes, tuple(places))


def label_groups(name: str, column: Column) -> GroupLabels:
    """The groups that the values of a column are.

    Text, true and false, and up to `MOST_NUMBERS` different numbers are groups of their own; more numbers are cut into
    `PARTS` of equal size. Rows without a value are a group. Groups of fewer than `FEWEST` rows are counted together, as
    are the smallest of more than `MOST`.

    Raises:
        InvalidValueError: there are no two groups of at least `FEWEST` rows.

    Examples:
        >>> label_groups("age", np.repeat([30.0, 40.0, np.nan], 10)).names
        ('30', '40', '(missing)')
        >>> label_groups("age", np.arange(100.0)).names[0]
        '0 to 19'
    """
    notes = []
    if not isinstance(column, Strings) and column.ndim != 1:
        raise InvalidValueError(f"`by` must name a column with one value a row, got {name} with a list in each.")
    if isinstance(column, Strings) or column.dtype.kind not in "iuf":
        text = column if isinstance(column, Strings) else _spelled(column)
    else:
        text = _spelled(column)
        if len(text.values) > MOST_NUMBERS:
            notes.append(f"{len(text.values):,} different numbers, cut into parts of equal size")
            text = _cut(column)
    codes = np.where(text.codes < 0, len(text.values), text.codes)
    names = np.array([*text.values, MISSING])
    counts = np.bincount(codes, minlength=len(names))
    order = np.lexsort((np.arange(len(names)), -counts))  # the largest first
    kept = [place for place in order[: MOST - 1] if counts[place] >= FEWEST]
    left = [place for place in order if counts[place] and place not in set(kept)]
    if len(left) == 1 and counts[left[0]] >= FEWEST:
        kept, left = [*kept, left[0]], []
    if len(kept) < 2:
        found = f"{int((counts > 0).sum()):,} different values in {len(codes):,} rows"
        rule = f"at least two groups of {FEWEST} rows or more"
        raise InvalidValueError(f"`by` (--by) must name a column with {rule}, got {name} with {found}.")
    kept = sorted(kept)
    places = np.full(len(names), len(kept), dtype=np.int64)
    places[kept] = np.arange(len(kept))
    shown = tuple(names[kept].tolist())
    if left:
        shown = (*shown, OTHER)
        smaller = f"of fewer than {FEWEST} rows" if counts[left].max() < FEWEST else "with the fewest rows"
        notes.append(f"{len(left):,} groups {smaller} are counted as {OTHER}")
    return GroupLabels(name, torch.from_numpy(places[codes]), shown, tuple(notes))


def _spelled(numbers: NDArray[Any]) -> Strings:
    """Numbers, or true and false, as text; a missing one has no value."""
    is_missing = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(len(numbers), dtype=bool)
    values, codes = np.unique(np.where(is_missing, numbers.dtype.type(0), numbers), return_inverse=True)
    texts = tuple(f"{value:.12g}" if numbers.dtype.kind == "f" else str(value) for value in values.tolist())
    return Strings(np.where(is_missing, -1, codes.reshape(-1)).astype(np.int64), texts)


def _cut(numbers: NDArray[Any]) -> Strings:
    """Numbers in parts of equal size, each named by the least and the largest in it; equal numbers stay together."""
    values = numbers.astype(np.float64)
    known = np.isfinite(values)
    edges = np.unique(np.quantile(values[known], np.arange(1, PARTS) / PARTS, method="lower"))
    part = np.where(known, np.searchsorted(edges, values), -1)
    inside = [values[part == place] for place in range(len(edges) + 1)]
    names = [f"{each.min():.6g} to {each.max():.6g}" if len(each) else "" for each in inside]
    return Strings(part.astype(np.int64), tuple(names))
