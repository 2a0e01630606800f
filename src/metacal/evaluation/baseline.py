"""An earlier evaluation as a baseline: figures of its JSON, and how far new ones differ from them."""

import json
import math
from pathlib import Path
from typing import Any

from metacal.errors import InvalidFileError
from metacal.evaluation.comparison import Difference
from metacal.evaluation.evaluation import Evaluation


def read_baseline(path: Path, figures: list[str]) -> dict[str, Any]:
    """What ``metacal evaluate --json`` wrote of one file.

    Raises:
        InvalidFileError: it is not that, or lacks one of these figures.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidFileError(f"{path}: cannot be read as JSON ({error}).") from None
    if not isinstance(found, dict) or "rows" not in found:
        raise InvalidFileError(f"{path}: must be the --json of `metacal evaluate` of one file; write it again.")
    for figure in figures:
        ends = [found.get(figure + end) for end in ("", "_low", "_high")]
        if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
            raise InvalidFileError(f"{path}: holds no {figure} with an interval; name another figure.")
    return found


def unpaired_difference(figure: str, old: dict[str, Any], new: Evaluation, baseline: str) -> Difference:
    """A figure of new predictions minus an earlier one's, of other rows: intervals combined (Zou and Donner 2008).

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
        raise InvalidFileError(f"{new.path}: has no {figure}, only top-label confidences; name another figure.")
    value, low, high = (new.figures[figure + end] for end in ("", "_low", "_high"))
    if math.isinf(value):
        return Difference(figure, new.name, baseline, math.inf, math.inf, math.inf)
    before, least, most = (float(old[figure + end]) for end in ("", "_low", "_high"))
    value, before = min(max(value, low), high), min(max(before, least), most)
    change = value - before
    below, above = math.hypot(value - low, most - before), math.hypot(high - value, before - least)
    return Difference(figure, new.name, baseline, change, change - below, change + above)
