"""Which columns of a table hold the scores and the target (by clear rules, never by values), and what targets mean."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidValueError
from metacal.evaluation.tables import BadRow, Column, Strings

PROB_WORDS = ("p", "prob", "probs", "proba", "probability", "probabilities")
LOGIT_WORDS = ("logit", "logits")
ARRAY_PROB_WORDS = ("predictions",)
"""Arrays, not columns: a column of this name often holds the class that was predicted."""

TARGET_WORDS = ("target", "targets", "label", "labels", "y", "y_true", "ground_truth")
TRUTHS = ("false", "true")
DROP = "fix or drop the row"


@dataclass(frozen=True)
class Layout:
    """Where things are.

    Attributes:
        scores: columns in the order of the classes; a single one holds lists, or the probability of class 1.
        is_logits: whether they are logits.
        target: the target's column, or None.
        class_names: the classes in order, where the columns (or the caller) name them.
        numbers: what an integer target stands for: position k's number; None if numbers are positions.
        positive: class 1 by the name of a single column of numbers.
    """

    scores: tuple[str, ...]
    is_logits: bool
    target: str | None
    class_names: tuple[str, ...] | None
    numbers: tuple[int, ...] | None
    positive: str | None = None


def find_layout(
    names: Sequence[str],
    *,
    probs: str | None = None,
    logits: str | None = None,
    target: str | None = None,
    class_names: Sequence[str] | None = None,
    numbers_are_names: bool = True,
    is_arrays: bool = False,
    needs_target: bool = True,
) -> Layout:
    """Find the columns among ``names``.

    Scores: those that ``probs`` or ``logits`` names (one name, several with commas, or a pattern with ``*``), else
    ``prob_*``, ``p_*``, ... or ``logit_*``, or one column ``probs`` or ``logits`` that holds lists. Target: the one
    that ``target`` names, else ``target``, ``label``, ``y``, ... What the columns' names have after the common part
    are the class names; where all of these are numbers, they order the columns and are what an integer target means.
    So do ``class_names`` that are numbers, if ``numbers_are_names``.

    Raises:
        InvalidValueError: nothing fits, or several do; the message says what to name.

    Examples:
        >>> layout = find_layout(["id", "p_cat", "p_dog", "label"])
        >>> layout.scores, layout.class_names, layout.target
        (('p_cat', 'p_dog'), ('cat', 'dog'), 'label')
        >>> find_layout(["score_2", "score_1", "y"], logits="score_*").numbers
        (1, 2)
    """
    if probs is not None and logits is not None:
        raise InvalidValueError("name the scores with `probs` (--probs) or with `logits` (--logits), not both.")
    target = _find_target(names, target, needs_target)
    others = [name for name in names if name != target]
    if probs is not None or logits is not None:
        pattern, is_logits = (probs, False) if probs is not None else (logits or "", True)
        found, labels = _match(others, pattern, "--logits" if is_logits else "--probs")
    else:
        found, labels, is_logits = _find_scores(others, is_arrays)
    repeated = [name for name in (*found, target) if name is not None and list(names).count(name) > 1]
    if repeated:
        raise InvalidValueError(f"column {repeated[0]} is there twice; rename one.")
    layout = _ordered(found, labels, is_logits, target, class_names)
    if class_names is not None and numbers_are_names and all(map(_is_class_number, class_names)):
        return replace(layout, numbers=tuple(map(int, class_names)))
    return layout


def _find_target(names: Sequence[str], target: str | None, needs_target: bool) -> str | None:
    if target is not None:
        if target not in names:
            if not needs_target:
                return None
            raise InvalidValueError(f"no column {target} for the target; `target` (--target) can be {_list(names)}.")
        return target
    found = [name for name in names if name.lower() in TARGET_WORDS]
    if len(found) == 1 or not needs_target:
        return found[0] if len(found) == 1 else None
    problem = f"several columns could be the target ({', '.join(found)})" if found else "no column for the target"
    raise InvalidValueError(f"{problem}; name it with `target` (--target): {_list(names)}.")


def match_columns(names: Sequence[str], pattern: str) -> list[str]:
    """Columns that a name or a pattern with ``*`` stands for."""
    part = pattern.strip()
    return [part] if part in names else [name for name in names if fnmatchcase(name, part)]


def _match(names: Sequence[str], pattern: str, option: str) -> tuple[list[str], list[str]]:
    """Columns that a pattern names, and the part of each name that differs from the others."""
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    found = [pattern] if pattern in names else []
    if not found:
        for part in parts:
            matches = match_columns(names, part)
            if not matches:
                raise InvalidValueError(f"no column matches {part} of {option}; there are {_list(names)}.")
            found += [name for name in matches if name not in found]
    if not found:
        raise InvalidValueError(f"{option} names no column; there are {_list(names)}.")
    if len(parts) == 1 and parts[0].count("*") == 1:
        before, after = parts[0].split("*")
        return found, [name[len(before) : len(name) - len(after)] for name in found]
    return found, _without_common_prefix(found)


def _find_scores(names: Sequence[str], is_arrays: bool) -> tuple[list[str], list[str], bool]:
    """Columns by their names alone: a word and a separator before each class, or a word on its own."""
    prob_words = PROB_WORDS + (ARRAY_PROB_WORDS if is_arrays else ())
    groups: list[tuple[list[str], list[str], bool]] = []
    for words, is_logits in ((prob_words, False), (LOGIT_WORDS, True)):
        for word in words:
            alone = [
                name for name in names if name.lower() == word or (is_arrays and name.lower().endswith(f"_{word}"))
            ]
            if alone:
                groups.append((alone, alone, is_logits))
            for separator in "_.":
                prefix = word + separator
                found = [name for name in names if name.lower().startswith(prefix) and name not in alone]
                if found:
                    groups.append((found, [name[len(prefix) :] for name in found], is_logits))
    if len(groups) == 1 and (len(groups[0][0]) == 1 or groups[0][0] != groups[0][1]):
        return groups[0]
    fix = "name them with `probs` (--probs 'p_*') or `logits` (--logits 'z_*')"
    if not groups:
        raise InvalidValueError(f"no columns for the scores; {fix}: {_list(names)}.")
    raise InvalidValueError(
        f"several groups of columns could be the scores ({', '.join(_list(group[0], 2) for group in groups)}); {fix}."
    )


def _ordered(
    found: list[str], labels: list[str], is_logits: bool, target: str | None, class_names: Sequence[str] | None
) -> Layout:
    names: tuple[str, ...] | None = None if class_names is None else tuple(class_names)
    if len(found) == 1:
        label = labels[0] if labels[0] != found[0] else ""
        if _is_class_number(label) and int(label) != 1:
            raise InvalidValueError(
                f"one column of scores, {found[0]}, but a binary model's must be that of class 1; rename it, or give "
                "a column for each class."
            )
        positive = label if label and not _is_class_number(label) else None
        return Layout((found[0],), is_logits, target, names, None, positive)
    numbers = None
    if all(map(_is_class_number, labels)):
        order = sorted(range(len(found)), key=lambda position: int(labels[position]))
        found, labels = [found[position] for position in order], [labels[position] for position in order]
        numbers = tuple(int(label) for label in labels)
        if len(set(numbers)) < len(numbers):
            raise InvalidValueError(f"two columns of {_list(found)} have the same number; rename one.")
        if numbers == tuple(range(len(found))):
            numbers = None
    if names is not None and len(names) != len(found):
        raise InvalidValueError(
            f"`class_names` (--class-names) must hold {len(found)} names for {_list(found)}, got {len(names)}."
        )
    return Layout(tuple(found), is_logits, target, tuple(labels) if names is None else names, numbers)


def _is_class_number(label: str) -> bool:
    """Whether a label is an integer that a target can be: not a superscript, nor one beyond any integer type."""
    return label.isdecimal() and len(label) <= 18


def _without_common_prefix(names: list[str]) -> list[str]:
    shared = 0
    for letters in zip(*names, strict=False):
        if len(set(letters)) > 1:
            break
        shared += 1
    prefix = names[0][:shared] if len(names) > 1 else ""
    cut = max((prefix.rfind(separator) for separator in "_. -/"), default=-1) + 1
    return [name[cut:] or name for name in names]


def _list(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > most else shown or "none"


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
            0, f"{name} has {column.shape[1:]} values a row, not one; of one-hot targets save the argmax over classes"
        )
    if column.dtype.kind == "f":
        return _from_numbers(_whole(column, name), class_names, numbers, name)
    if column.dtype.kind not in "iu":
        raise BadRow(0, f"{name} holds {column.dtype}, not class names or integers; write it as either")
    return _from_numbers(column.astype(np.int64), class_names, numbers, name)


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
