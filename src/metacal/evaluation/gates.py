"""Gates: bounds on figures, and comparisons with an earlier evaluation."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation.comparison import Difference
from metacal.evaluation.evaluation import Evaluation


@dataclass(frozen=True)
class Check:
    """The result of one gate: the model, the condition, whether it holds, and a description."""

    model: str
    name: str
    holds: bool
    line: str


@dataclass(frozen=True)
class Bound:
    """An upper (ceiling) or lower bound on a figure."""

    figure: str
    number: float
    is_ceiling: bool

    @classmethod
    def parse(cls, text: str, keys: tuple[str, ...], is_ceiling: bool) -> "Bound":
        """Parse ``"ece=0.05"``; an unknown figure is refused before any work is done."""
        option = "--fail-above" if is_ceiling else "--fail-below"
        key, _, number = (part.strip() for part in text.partition("="))
        try:
            bound = float(number)
        except ValueError:
            bound = math.nan
        if math.isnan(bound):
            raise InvalidValueError(f"`{option}` must be KEY=NUMBER, such as ece=0.05, got {text!r}.")
        if key not in keys:
            raise InvalidValueError(f"`{option}` must name one of {', '.join(keys)}, got {key!r}.")
        return cls(key, bound, is_ceiling)

    def check(self, evaluation: Evaluation) -> Check:
        """Check the bound; an infinite or undefined figure fails."""
        if self.figure not in evaluation.figures:
            why = "only top-label confidences" if not evaluation.num_classes else "which only binary models have"
            raise InvalidValueError(f"{evaluation.path}: has no {self.figure}, {why}; name another figure.")
        value = evaluation.figures[self.figure]
        holds = value <= self.number if self.is_ceiling else value >= self.number
        side = ("at most" if holds else "above") if self.is_ceiling else ("at least" if holds else "below")
        line = f"{evaluation.path}: {self.figure} {value:.4g} {'is' if holds else 'FAILS:'} {side} {self.number:g}"
        asked = f"{self.figure} {'at most' if self.is_ceiling else 'at least'} {self.number:g}"
        return Check(evaluation.name, asked, holds, line)


def check_difference(difference: Difference) -> Check:
    """Check that a figure is not worse than that of the baseline beyond noise."""
    worse = "FAILS: worse than the baseline: " if difference.is_worse else ""
    asked = f"{difference.figure} no worse than {difference.baseline}"
    return Check(difference.model, asked, not difference.is_worse, worse + difference.verdict)


def read_baseline(path: Path, figures: list[str]) -> dict[str, Any] | None:
    """Read the JSON of ``metacal evaluate --json``; None if the file holds predictions.

    Raises:
        InvalidFileError: it is not JSON, of several files, or lacks one of these figures.
    """
    if path.suffix.lower() != ".json":
        return None
    if not path.is_file():
        raise InvalidFileError(f"{path}: no such file; check the path.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path}: cannot be read as JSON ({error}); write it again.") from None
    if isinstance(found, dict) and "differences" in found:
        raise InvalidFileError(f"{path}: must be the --json of `metacal evaluate` of one file; write it again.")
    if not isinstance(found, dict) or "rows" not in found:
        return None
    for figure in figures:
        ends = [found.get(figure + end) for end in ("", "_low", "_high")]
        if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
            raise InvalidFileError(f"{path}: holds no {figure} with an interval; name another figure.")
    return found


def unpaired_difference(figure: str, old: dict[str, Any], new: Evaluation, baseline: str) -> Difference:
    """Difference from an earlier evaluation of other rows: combined intervals (Zou and Donner 2008).

    The value of a calibration error may lie above its interval; the nearest end stands for it then. An infinite figure
    is worse than any other.

    Examples:
        >>> from metacal.evaluation import evaluate, example_predictions
        >>> probs, targets = example_predictions()
        >>> old = {"ece": 0.01, "ece_low": 0.005, "ece_high": 0.015}
        >>> unpaired_difference("ece", old, evaluate(probs=probs, targets=targets), "old").is_worse
        True
    """
    if figure not in new.figures:
        raise InvalidFileError(f"{new.path}: has no {figure}, name another figure.")
    value, low, high = (new.figures[figure + end] for end in ("", "_low", "_high"))
    if math.isinf(value):
        return Difference(figure, new.name, baseline, math.inf, math.inf, math.inf)
    before, least, most = (float(old[figure + end]) for end in ("", "_low", "_high"))
    value, before = min(max(value, low), high), min(max(before, least), most)
    change = value - before
    below, above = math.hypot(value - low, most - before), math.hypot(high - value, before - least)
    return Difference(figure, new.name, baseline, change, change - below, change + above)
