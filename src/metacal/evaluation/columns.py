"""Finds the columns of scores and targets by name, and checks the values of target columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidValueError
from metacal.evaluation.tables import DROP, BadRow, Column, Strings, is_number

PROB_WORDS = ("p", "prob", "probs", "proba", "probability", "probabilities")
LOGIT_WORDS = ("logit", "logits")
ARRAY_PROB_WORDS = ("predictions",)
"""Arrays, not columns: a column of this name often holds the class that was predicted."""

SCORE_WORDS = ("y_score", "y_scores", "score", "scores", "softmax")
PREDICTED_PROB_WORDS = tuple(
    f"{first}_{second}"
    for first in ("pred", "predicted", "prediction")
    for second in ("prob", "probs", "proba", "probability", "probabilities")
)
MORE_PROB_WORDS = ("y_prob", "y_proba", "y_pred_proba", "predict_proba", *SCORE_WORDS, *PREDICTED_PROB_WORDS)
LIKELIHOOD_WORDS = ("loglikelihood", "loglikelihoods", "log_likelihood", "log_likelihoods")
OPTION_WORDS = ("option_logprobs", "choice_logprobs")
LOG_PROB_WORDS = ("logprob", "logprobs", "log_prob", "log_probs", *OPTION_WORDS, *LIKELIHOOD_WORDS)
"""Both only where no column has a name of those above."""

TARGET_WORDS = ("target", "targets", "label", "labels", "y", "y_true", "ground_truth")
TRUE_WORDS = ("true_label", "true_class", "truth", "true", "gt", "actual", "expected", "y_actual", "label_value")
GOLD_WORDS = ("gold", "gold_label", "gold_answer", "answer", "reference", "references", "label_ids")
MORE_TARGET_WORDS = ("y_test", "class", *GOLD_WORDS, *TRUE_WORDS)
TARGET_ENDS = ("_target", "_actual", "_truth", "_true", "_targets", "_labels")
STATED_WORDS = ("stated_confidence", "verbalized_confidence", "verbalised_confidence")
CONFIDENCE_WORDS = ("confidence", "confidences", "conf", "max_prob", "top_prob", "score", *STATED_WORDS)
PREDICTED_WORDS = ("prediction", "predictions", "predicted", "pred", "y_pred", "predicted_label", "predicted_class")
PREDICTION_WORDS = ("answer", "response", *PREDICTED_WORDS)
CORRECT_WORDS = ("correct", "is_correct")
TRUTHS = ("false", "true")


@dataclass(frozen=True)
class Layout:
    """The columns of a table: scores, target and class names.

    Attributes:
        scores: columns in the order of the classes; a single one holds lists, or the probability of class 1.
        target: the target's column, or None.
        class_names: the classes in order, where the columns (or the caller) name them.
        numbers: what an integer target stands for: position k's number; None if numbers are positions.
        positive: class 1 by the name of a single column of numbers.
        kind: what the scores are, for people.
        decided: what that was decided by.
        prediction: the predicted class's column, where ``scores`` is its confidence alone (top-label).
        correct: whether that class was right, where a column says so.
    """

    scores: tuple[str, ...]
    target: str | None = None
    class_names: tuple[str, ...] | None = None
    numbers: tuple[int, ...] | None = None
    positive: str | None = None
    kind: str = "probabilities"
    decided: str = "by name"
    prediction: str | None = None
    correct: str | None = None

    @property
    def is_logits(self) -> bool:
        """Whether the scores are logits."""
        return self.kind in ("logits", "log-probabilities")

    @property
    def is_top_label(self) -> bool:
        """Whether the file only has the confidence in the predicted class."""
        return self.prediction is not None or self.correct is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the layout."""
        others = (self.correct,) if self.correct else (self.prediction, self.target)
        return (*self.scores, *(name for name in others if name))


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
    pattern = logits if probs is None else probs
    if pattern is None and (top := _find_top_label(names, target, is_arrays)) is not None:
        return top
    target = _find_target(names, target, needs_target)
    others = [name for name in names if name != target]
    if pattern is None:
        found, labels, kind, decided = _find_scores(others, is_arrays)
    else:
        kind, option = ("logits", "--logits") if probs is None else ("probabilities", "--probs")
        found, labels = _match(others, pattern, option)
        decided = f"by {option}"
    repeated = [name for name in (*found, target) if name is not None and list(names).count(name) > 1]
    if repeated:
        raise InvalidValueError(f"column {repeated[0]} is there twice; rename one.")
    layout = replace(_in_order(found, labels, class_names), target=target, kind=kind, decided=decided)
    if class_names is not None and numbers_are_names and all(map(_is_class_number, class_names)):
        return replace(layout, numbers=tuple(map(int, class_names)))
    return layout


def _find_target(names: Sequence[str], target: str | None, needs_target: bool) -> str | None:
    if target is not None:
        if target not in names and needs_target:
            there = list_names(names)
            raise InvalidValueError(f"no column {target} for the target; `target` (--target) can be {there}.")
        return target if target in names else None
    found = _named(names, TARGET_WORDS) or _named(names, MORE_TARGET_WORDS)
    found = found or [name for name in names if name.lower().endswith(TARGET_ENDS)]
    if len(found) == 1 or not needs_target:
        return found[0] if len(found) == 1 else None
    problem = f"several columns could be the target ({', '.join(found)})" if found else "no column for the target"
    raise InvalidValueError(f"{problem}; name it with `target` (--target): {list_names(names)}.")


def match_columns(names: Sequence[str], pattern: str) -> list[str]:
    """Return the columns that match a name or a pattern with ``*``."""
    part = pattern.strip()
    return [part] if part in names else [name for name in names if fnmatchcase(name, part)]


def _match(names: Sequence[str], pattern: str, option: str) -> tuple[list[str], list[str]]:
    """Return the columns that match a pattern, and the varying part of each name."""
    parts = [pattern] if pattern in names else [part.strip() for part in pattern.split(",") if part.strip()]
    matches = {part: match_columns(names, part) for part in parts}
    missing = next((part for part, each in matches.items() if not each), None)
    if missing is not None:
        raise InvalidValueError(f"no column matches {missing} of {option}; there are {list_names(names)}.")
    if not parts:
        raise InvalidValueError(f"{option} names no column; there are {list_names(names)}.")
    found = list(dict.fromkeys(name for each in matches.values() for name in each))
    if len(parts) == 1 and parts[0] not in names and parts[0].count("*") == 1:
        before, after = parts[0].split("*")
        return found, [name[len(before) : len(name) - len(after)] for name in found]
    return found, without_common_prefix(found)


def _named(names: Sequence[str], words: Sequence[str]) -> list[str]:
    return [name for name in names if name.lower() in words]


def _find_top_label(names: Sequence[str], target: str | None, is_arrays: bool) -> Layout | None:
    """Find confidence and prediction columns if no columns hold scores of all classes."""
    confidence, correct = _named(names, CONFIDENCE_WORDS), _named(names, CORRECT_WORDS)
    if len(confidence) != 1 or _groups(names, PROB_WORDS + LOGIT_WORDS, "", is_arrays):
        return None
    found = Layout((confidence[0],), kind="top-label confidence")
    if target is None and len(correct) == 1:
        return replace(found, correct=correct[0])
    target = _find_target(names, target, needs_target=False) or _find_target(
        [name for name in names if name.lower() not in PREDICTION_WORDS], target, needs_target=False
    )
    predictions = [name for name in _named(names, PREDICTION_WORDS) if name != target]
    return replace(found, target=target, prediction=predictions[0]) if target and len(predictions) == 1 else None


ScoreGroup = tuple[list[str], list[str], str]
"""Columns, the class that each is of, and what they hold."""


def _groups(names: Sequence[str], words: Sequence[str], kind: str, is_arrays: bool = False) -> list[ScoreGroup]:
    """Group columns by name: a word and a separator before each class, or a word on its own."""
    groups: list[ScoreGroup] = []
    for word in words:
        alone = [name for name in names if name.lower() == word or (is_arrays and name.lower().endswith(f"_{word}"))]
        groups += [(alone, alone, kind)] if alone else []
        for prefix, suffix in ((f"{word}_", ""), (f"{word}.", ""), (f"{word}(", ")")):
            found = [name for name in names if _has_class(name, prefix, suffix) and name not in alone]
            groups += [(found, [name[len(prefix) : len(name) - len(suffix)] for name in found], kind)] if found else []
    return groups


def _has_class(name: str, prefix: str, suffix: str) -> bool:
    return name.lower().startswith(prefix) and name.lower().endswith(suffix)


def _groups_by_end(names: Sequence[str], words: Sequence[str], kind: str) -> list[ScoreGroup]:
    """Group columns whose names have the class first: ``cat_prob``; one alone is not a group."""
    groups = [([name for name in names if _has_class(name, "", f"_{word}")], len(word) + 1) for word in words]
    return [(found, [name[:-length] for name in found], kind) for found, length in groups if len(found) > 1]


def _find_scores(names: Sequence[str], is_arrays: bool) -> tuple[list[str], list[str], str, str]:
    prob_words = PROB_WORDS + (ARRAY_PROB_WORDS if is_arrays else ())
    groups = _groups(names, prob_words, "probabilities", is_arrays) + _groups(names, LOGIT_WORDS, "logits", is_arrays)
    if not groups:
        groups = _groups(names, MORE_PROB_WORDS, "probabilities") + _groups(names, LOG_PROB_WORDS, "log-probabilities")
    if not groups:
        groups = _groups_by_end(names, PROB_WORDS, "probabilities") + _groups_by_end(names, LOGIT_WORDS, "logits")
    if len(groups) == 1 and (len(groups[0][0]) == 1 or groups[0][0] != groups[0][1]):
        return *groups[0], "by name"
    numbered = [name for name in names if _is_class_number(name)]
    runs = [list(range(first, first + len(numbered))) for first in (0, 1)]
    if not groups and len(numbered) > 1 and sorted(map(int, numbered)) in runs:
        return numbered, numbered, "probabilities", "columns are numbered, as scikit-learn writes them"
    fix = "name them with `probs` (--probs 'p_*') or `logits` (--logits 'z_*')"
    if not groups:
        if _named(names, CONFIDENCE_WORDS):
            fix = "a confidence alone needs the predicted class (`prediction`) or `correct` beside it, else " + fix
        raise InvalidValueError(f"no columns for the scores; {fix}: {list_names(names)}.")
    alike = ", ".join(list_names(group[0], 2) for group in groups)
    raise InvalidValueError(f"several groups of columns could be the scores ({alike}); {fix}.")


def _in_order(found: list[str], labels: list[str], class_names: Sequence[str] | None) -> Layout:
    names = None if class_names is None else tuple(class_names)
    if len(found) == 1:
        label = labels[0] if labels[0] != found[0] else ""
        if _is_class_number(label) and int(label) != 1:
            rule = f"one column of scores, {found[0]}, but a binary model's must be that of class 1"
            raise InvalidValueError(f"{rule}; rename it, or give a column for each class.")
        return Layout((found[0],), class_names=names, positive=None if _is_class_number(label) else label or None)
    if all(label.lower().startswith("class_") and len(label) > 6 for label in labels):
        labels = [label[6:] for label in labels]
    numbers = None
    if all(map(_is_class_number, labels)):
        order = sorted(range(len(found)), key=lambda position: int(labels[position]))
        found, labels = [found[position] for position in order], [labels[position] for position in order]
        numbers = tuple(map(int, labels))
        if len(set(numbers)) < len(numbers):
            raise InvalidValueError(f"two columns of {list_names(found)} have the same number; rename one.")
    if names is not None and len(names) != len(found):
        rule = f"must hold {len(found)} names for {list_names(found)}"
        raise InvalidValueError(f"`class_names` (--class-names) {rule}, got {len(names)}.")
    is_counted = numbers == tuple(range(len(found)))
    return Layout(tuple(found), class_names=names or tuple(labels), numbers=None if is_counted else numbers)


def _is_class_number(label: str) -> bool:
    """Whether a label is an integer that can be a target: no superscript, and within int64."""
    return label.isdecimal() and len(label) <= 18


def without_common_prefix(names: list[str]) -> list[str]:
    """Strip the common prefix of all names, up to a separator."""
    shared = 0
    for letters in zip(*names, strict=False):
        if len(set(letters)) > 1:
            break
        shared += 1
    prefix = names[0][:shared] if len(names) > 1 else ""
    cut = max(prefix.rfind(separator) for separator in "_. -/") + 1
    return [name[cut:] or name for name in names]


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Join names with commas; of many, the first ones and the total number."""
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
    """Return class numbers 0..K-1 of a column of names, booleans or integers.

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
    if not isinstance(column, Strings) and column.ndim != 1:
        fix = (
            "of one-hot targets save the argmax over classes, or pass `multilabel` (--multilabel) if each is yes or no"
        )
        raise BadRow(0, f"{name} has {column.shape[1]} values a row, not one; {fix}")
    if not isinstance(column, Strings) and column.dtype.kind == "b":
        column = Strings(column.astype(np.int64), TRUTHS)
    if isinstance(column, Strings):
        places, is_place = _from_text(column, class_names, name, is_binary or numbers is not None)
        if is_place:
            return places.astype(np.int64)
        column = places
    if column.dtype.kind not in "fiu":
        raise BadRow(0, f"{name} holds {column.dtype}, not class names or integers; write it as either")
    with np.errstate(invalid="ignore"):
        values = column.astype(np.int64)
    bad = np.flatnonzero(values != column if column.dtype.kind == "f" else [])  # NaN is equal to nothing
    if len(bad):
        value = column[bad[0]]
        found = "no value" if np.isnan(value) else f"{value:g}, which is not a class number"
        raise BadRow(int(bad[0]), f"{name} has {found}; {DROP}")
    if numbers is not None:
        known = np.asarray(numbers, dtype=np.int64)
        order = np.argsort(known)
        places = order[np.searchsorted(known, values, sorter=order).clip(0, len(known) - 1)]
        bad = np.flatnonzero(known[places] != values)
    else:
        places = values
        # Read as unsigned, a negative number is larger than any class: one pass settles both ends.
        bad = np.flatnonzero(values.view(np.uint64) >= len(class_names))
    if len(bad):
        allowed = f"0..{len(class_names) - 1}" if numbers is None else list_values(numbers)
        raise BadRow(int(bad[0]), f"{name} is {values[bad[0]]}, classes are {allowed}; fix the target or its numbering")
    return places


def _from_text(column: Strings, class_names: Sequence[str], name: str, is_yes_no: bool) -> tuple[NDArray[Any], bool]:
    """Return class positions and True if the text names classes; otherwise the parsed numbers and False."""
    if len(missing := np.flatnonzero(column.codes < 0)):
        raise BadRow(int(missing[0]), f"{name} has no value; {DROP}")
    known = {class_name: place for place, class_name in enumerate(class_names)}
    found = np.array([known.get(value, -1) for value in column.values] or [0], dtype=np.int64)[column.codes]
    if not len(unknown := np.flatnonzero(found < 0)):
        return found, True
    if all(value.lower() in TRUTHS for value in column.values):
        spelled = [class_name.lower() for class_name in class_names]
        is_named = all(spelled.count(truth) == 1 for truth in TRUTHS)
        if is_named or (len(class_names) == 2 and (is_yes_no or spelled == ["0", "1"])):
            places = {truth: spelled.index(truth) if is_named else TRUTHS.index(truth) for truth in TRUTHS}
            return np.array([places[value.lower()] for value in column.values])[column.codes], is_named
    if all(map(is_number, column.values)):
        return np.array([float(value) for value in column.values])[column.codes], False
    value = column.values[int(column.codes[unknown[0]])]
    fix = "fix it, or name the classes in the order of the scores with `class_names` (--class-names)"
    classes = list_values(list(map(repr, class_names)))
    raise BadRow(int(unknown[0]), f"{name} is {value!r}, not one of the classes {classes}; {fix}")


def list_values(values: Sequence[object], most: int = 8) -> str:
    """Join values with commas; of many, only the first ones."""
    return ", ".join(map(str, values[:most])) + (", ..." if len(values) > most else "")
