"""What a binary model is asked for besides: ranking (ROC-AUC, average precision), and what each threshold gives."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.intervals import Z_95

THRESHOLDS = tuple(step / 10 for step in range(1, 10))


class Threshold(NamedTuple):
    """What calling every row positive whose probability of class 1 is at least ``threshold`` gives.

    Precision is None where no row is called positive, recall where none is, F1 where both are.
    """

    threshold: float
    precision: float | None
    recall: float | None
    f1: float | None
    share_positive: float
    is_best: bool = False  # has the highest F1 of all thresholds


class _Ranking(NamedTuple):
    """Rows at or above each different probability, the highest first."""

    values: Tensor
    hits: Tensor
    called: Tensor
    positives: int


def _ranked(scores: Tensor, is_positive: Tensor) -> _Ranking:
    ordered, order = scores.double().sort(descending=True)
    is_last = torch.cat((ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool, device=ordered.device)))
    hits = is_positive[order].cumsum(0)
    called = torch.arange(1, len(ordered) + 1, device=ordered.device)
    return _Ranking(ordered[is_last], hits[is_last], called[is_last], int(is_positive.sum()))


def roc_auc(scores: Tensor, is_positive: Tensor) -> tuple[float, float, float]:
    """Area under the ROC curve and its 95 % interval: DeLong's, on the logit scale; NaN without both classes.

    Args:
        scores: of class 1, ``(n,)``.
        is_positive: bool ``(n,)``.

    Examples:
        >>> roc_auc(torch.tensor([0.9, 0.8, 0.3, 0.1]), torch.tensor([True, False, True, False]))[0]
        0.75
    """
    positive, negative = scores[is_positive].double().sort().values, scores[~is_positive].double().sort().values
    if not len(positive) or not len(negative):
        return math.nan, math.nan, math.nan
    parts = []
    for own, others, side in ((positive, negative, 1.0), (negative, positive, -1.0)):
        below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
        share = 0.5 * below.double() / len(others)
        parts.append(share if side > 0 else 1.0 - share)
    area = parts[0].mean().item()
    variance = sum(part.var().item() / len(part) for part in parts if len(part) > 1)
    if not 0.0 < area < 1.0 or min(map(len, parts)) < 2:
        return area, math.nan, math.nan
    half = Z_95 * math.sqrt(variance) / (area * (1.0 - area))
    middle = math.log(area / (1.0 - area))
    return area, 1.0 / (1.0 + math.exp(half - middle)), 1.0 / (1.0 + math.exp(-half - middle))


def average_precision(scores: Tensor, is_positive: Tensor) -> float:
    """Precision averaged over the rows of class 1, each at the threshold that just finds it; NaN if there are none.

    Examples:
        >>> round(average_precision(torch.tensor([0.9, 0.8, 0.3]), torch.tensor([True, False, True])), 4)
        0.8333
    """
    ranked = _ranked(scores, is_positive)
    if not ranked.positives:
        return math.nan
    gained = torch.diff(ranked.hits, prepend=ranked.hits.new_zeros(1))
    return float((gained.double() * ranked.hits / ranked.called).sum()) / ranked.positives


def threshold_table(scores: Tensor, is_positive: Tensor) -> list[Threshold]:
    """Precision, recall and F1 at 0.1 to 0.9, and at the threshold with the best F1, in order.

    Examples:
        >>> table = threshold_table(torch.tensor([0.9, 0.75, 0.35, 0.1]), torch.tensor([True, True, True, False]))
        >>> [(round(row.threshold, 2), row.f1) for row in table if row.is_best]
        [(0.35, 1.0)]
    """
    ranked = _ranked(scores, is_positive)
    f1 = 2.0 * ranked.hits.double() / (ranked.called + max(ranked.positives, 1))
    best = float(ranked.values[f1.argmax()])

    def row(threshold: float, is_best: bool = False) -> Threshold:
        place = int((ranked.values >= threshold).sum()) - 1
        hits, called = (int(ranked.hits[place]), int(ranked.called[place])) if place >= 0 else (0, 0)
        precision = hits / called if called else None
        recall = hits / ranked.positives if ranked.positives else None
        both = called + ranked.positives
        return Threshold(threshold, precision, recall, 2 * hits / both if both else None, called / len(scores), is_best)

    fixed = [row(threshold) for threshold in THRESHOLDS if threshold != best]
    return sorted([*fixed, row(best, is_best=True)], key=lambda each: each.threshold)
