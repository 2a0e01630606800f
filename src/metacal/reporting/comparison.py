"""Numbers of a comparison: the headline scores of several sets of predictions side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metacal.evaluation.scores import Bound
from metacal.reporting.summary import MEASURES, Summary


@dataclass(frozen=True)
class ComparedScore:
    """One measure over all sets, None where it is infinite; ``best`` share the best value to four digits."""

    key: str
    label: str
    values: list[float | None]
    lows: list[float | None]
    highs: list[float | None]
    bounds: list[Bound | None]
    best: list[int]


@dataclass(frozen=True)
class Comparison:
    """Several sets of predictions: their names, and one row a measure."""

    names: list[str]
    scores: list[ComparedScore]


def prepare_comparison(named: Sequence[tuple[str, Summary]]) -> Comparison | None:
    """Scores side by side; None for fewer than two sets.

    Examples:
        >>> prepare_comparison([]) is None
        True
    """
    if len(named) < 2:
        return None
    scores = []
    for place, (key, (label, _)) in enumerate(MEASURES.items()):
        rows = [summary.scores[place] for _, summary in named]
        shown = [math.inf if row.value is None else round(row.value, 4) for row in rows]
        best = max(shown) if key == "accuracy" else min(shown)
        scores.append(
            ComparedScore(
                key,
                label,
                [row.value for row in rows],
                [row.low for row in rows],
                [row.high for row in rows],
                [row.bound for row in rows],
                [number for number, value in enumerate(shown) if value == best] if len(set(shown)) > 1 else [],
            )
        )
    return Comparison([name for name, _ in named], scores)
