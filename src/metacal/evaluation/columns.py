"""Which columns of a table hold the scores and the target: by clear rules, never by values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from metacal.errors import InvalidValueError

PROB_WORDS = ("p", "prob", "probs", "proba", "probability", "probabilities")
LOGIT_WORDS = ("logit", "logits")
MORE_PROB_WORDS = (
    "y_prob",
    "y_proba",
    "y_pred_proba",
    "predict_proba",
    "y_score",
    "y_scores",
    "score",
    "scores",
    "softmax",
)
LIKELIHOOD_WORDS = ("loglikelihood", "loglikelihoods", "log_likelihood", "log_likelihoods")
LOG_PROB_WORDS = ("logprob", "logprobs", "log_prob", "log_probs", "option_logprobs", *LIKELIHOOD_WORDS)
"""Both only where no column has a name of those above."""

ARRAY_PROB_WORDS = ("predictions",)
"""Arrays, not columns: a column of this name often holds the class that was predicted."""

TARGET_WORDS = ("target", "targets", "label", "labels", "y", "y_true", "ground_truth")
MORE_TARGET_WORDS = ("y_test", "class", "gold", "answer", "label_value", "true_label", "true_class", "truth", "actual")
TARGET_ENDS = ("_target", "_actual", "_truth", "_true")
CONFIDENCE_WORDS = ("confidence", "confidences", "conf", "max_prob", "top_prob", "score")
ANSWER_WORDS = ("answer", "response")
PREDICTION_WORDS = (
    *ANSWER_WORDS,
    "prediction",
    "predictions",
    "predicted",
    "pred",
    "y_pred",
    "predicted_label",
    "predicted_class",
)
CORRECT_WORDS = ("correct", "is_correct")


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
        kind: what the scores are, for people.
        decided: what that was decided by.
        prediction: the predicted class's column, where ``scores`` is its confidence alone (top-label).
        correct: whether that class was right, where a column says so.
    """

    scores: tuple[str, ...]
    is_logits: bool
    target: str | None
    class_names: tuple[str, ...] | None
    numbers: tuple[int, ...] | None
    positive: str | None = None
    kind: str = "probabilities"
    decided: str = "by name"
    prediction: str | None = None
    correct: str | None = None

    @property
    def is_top_label(self) -> bool:
        """Whether there is only the confidence in the predicted class."""
        return self.prediction is not None or self.correct is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them."""
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
    if probs is None and logits is None and (top := _find_top_label(names, target, is_arrays)) is not None:
        return top
    target = _find_target(names, target, needs_target)
    others = [name for name in names if name != target]
    if probs is not None or logits is not None:
        kind = "logits" if probs is None else "probabilities"
        option = "--logits" if probs is None else "--probs"
        decided = f"by {option}"
        found, labels = _match(others, (logits or "") if probs is None else probs, option)
    else:
        found, labels, kind, decided = _find_scores(others, is_arrays)
    repeated = [name for name in (*found, target) if name is not None and list(names).count(name) > 1]
    if repeated:
        raise InvalidValueError(f"column {repeated[0]} is there twice; rename one.")
    layout = _ordered(found, labels, kind != "probabilities", target, class_names)
    layout = replace(layout, kind=kind, decided=decided)
    if class_names is not None and numbers_are_names and all(map(_is_class_number, class_names)):
        return replace(layout, numbers=tuple(map(int, class_names)))
    return layout


def _find_target(names: Sequence[str], target: str | None, needs_target: bool) -> str | None:
    if target is not None:
        if target not in names:
            if not needs_target:
                return None
            raise InvalidValueError(
                f"no column {target} for the target; `target` (--target) can be {list_names(names)}."
            )
        return target
    found = _named(names, TARGET_WORDS) or _named(names, MORE_TARGET_WORDS)
    found = found or [name for name in names if name.lower().endswith(TARGET_ENDS)]
    if len(found) == 1 or not needs_target:
        return found[0] if len(found) == 1 else None
    problem = f"several columns could be the target ({', '.join(found)})" if found else "no column for the target"
    raise InvalidValueError(f"{problem}; name it with `target` (--target): {list_names(names)}.")


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
                raise InvalidValueError(f"no column matches {part} of {option}; there are {list_names(names)}.")
            found += [name for name in matches if name not in found]
    if not found:
        raise InvalidValueError(f"{option} names no column; there are {list_names(names)}.")
    if len(parts) == 1 and parts[0].count("*") == 1:
        before, after = parts[0].split("*")
        return found, [name[len(before) : len(name) - len(after)] for name in found]
    return found, without_common_prefix(found)


def _named(names: Sequence[str], words: Sequence[str]) -> list[str]:
    return [name for name in names if name.lower() in words]


def _find_top_label(names: Sequence[str], target: str | None, is_arrays: bool) -> Layout | None:
    """Columns of a confidence and of what it is in, where no columns hold scores of all classes."""
    confidence, correct = _named(names, CONFIDENCE_WORDS), _named(names, CORRECT_WORDS)
    if len(confidence) != 1 or _groups(names, PROB_WORDS, "probabilities", is_arrays):
        return None
    if _groups(names, LOGIT_WORDS, "logits", is_arrays):
        return None
    found = replace(Layout((confidence[0],), False, None, None, None), kind="top-label confidence")
    if target is None and len(correct) == 1:
        return replace(found, correct=correct[0])
    target = _find_target(names, target, needs_target=False)
    predictions = [name for name in _named(names, PREDICTION_WORDS) if name != target]
    return replace(found, target=target, prediction=predictions[0]) if target and len(predictions) == 1 else None


ScoreGroup = tuple[list[str], list[str], str]
"""Columns, the class that each is of, and what they hold."""


def _groups(names: Sequence[str], words: Sequence[str], kind: str, is_arrays: bool) -> list[ScoreGroup]:
    """Columns by their names alone: a word and a separator before each class, or a word on its own."""
    groups: list[ScoreGroup] = []
    for word in words:
        alone = [name for name in names if name.lower() == word or (is_arrays and name.lower().endswith(f"_{word}"))]
        if alone:
            groups.append((alone, alone, kind))
        for separator in "_.":
            prefix = word + separator
            found = [name for name in names if name.lower().startswith(prefix) and name not in alone]
            if found:
                groups.append((found, [name[len(prefix) :] for name in found], kind))
    return groups


def _find_scores(names: Sequence[str], is_arrays: bool) -> tuple[list[str], list[str], str, str]:
    prob_words = PROB_WORDS + (ARRAY_PROB_WORDS if is_arrays else ())
    groups = _groups(names, prob_words, "probabilities", is_arrays) + _groups(names, LOGIT_WORDS, "logits", is_arrays)
    if not groups:
        groups = _groups(names, MORE_PROB_WORDS, "probabilities", False)
        groups += _groups(names, LOG_PROB_WORDS, "log-probabilities", False)
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
            raise InvalidValueError(f"two columns of {list_names(found)} have the same number; rename one.")
        if numbers == tuple(range(len(found))):
            numbers = None
    if names is not None and len(names) != len(found):
        raise InvalidValueError(
            f"`class_names` (--class-names) must hold {len(found)} names for {list_names(found)}, got {len(names)}."
        )
    return Layout(tuple(found), is_logits, target, tuple(labels) if names is None else names, numbers)


def _is_class_number(label: str) -> bool:
    """Whether a label is an integer that a target can be: not a superscript, nor one beyond any integer type."""
    return label.isdecimal() and len(label) <= 18


def without_common_prefix(names: list[str]) -> list[str]:
    """What is left of each name after the part, up to a separator, that all have in common."""
    shared = 0
    for letters in zip(*names, strict=False):
        if len(set(letters)) > 1:
            break
        shared += 1
    prefix = names[0][:shared] if len(names) > 1 else ""
    cut = max((prefix.rfind(separator) for separator in "_. -/"), default=-1) + 1
    return [name[cut:] or name for name in names]


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Names with commas; of many the first ones, and how many there are."""
    shown = ", ".join(names[:most])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > most else shown or "none"
