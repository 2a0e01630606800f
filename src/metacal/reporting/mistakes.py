"""The most confident mistakes, the pairs of classes confused most, and how many mistakes are left at each coverage."""

from dataclasses import dataclass

import torch
from torch import Tensor

from metacal.evaluation.evaluation import RISKS
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.rejection import risk_coverage
from metacal.functional.arguments import check_integer
from metacal.functional.binning import confidence_and_correctness
from metacal.functional.inputs import at_least_float32

POINTS = 200


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction."""

    row: int  # of the sample, counted from 0
    predicted: str  # name of the class that the model said
    confidence: float
    actual: str  # name of the true class
    actual_prob: float  # the probability that the model gave to it


@dataclass(frozen=True)
class Confusion:
    """One kind of mistake: how often one class was taken for another, and how surely on average."""

    actual: str
    predicted: str
    count: int
    confidence: float


@dataclass(frozen=True)
class Mistakes:
    """All mistakes in short."""

    count: int  # wrong predictions in all
    confident: int  # those of them with a confidence of at least 0.9
    surest: list[Mistake]  # most confident first; rows in order where confidences are equal
    pairs: list[Confusion]  # the most frequent confusions


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Risk (share of wrong answers among those given) against coverage (share of samples answered)."""

    coverages: list[float]  # rising, about `POINTS` of them; the last is 1
    risks: list[float]  # risk at each coverage, over the most confident samples
    thresholds: list[float]  # the least confidence that is answered at each coverage
    aurc: float  # area under the full curve (mean risk over all coverages)
    best_aurc: float  # that of a model with as many mistakes that ranks every one of them last
    # for each risk in `RISKS` (as text), the largest coverage whose risk is no higher; 0 if none is
    coverage_at: dict[str, float]


def prepare_mistakes(predictions: Predictions, most: int = 15, most_pairs: int = 10) -> Mistakes:
    """The ``most`` most confident mistakes and the ``most_pairs`` most frequent confusions.

    Examples:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> mistakes = prepare_mistakes(Predictions.from_probs(probs, torch.tensor([1, 0, 0]), ("cat", "dog")))
        >>> [(one.row, one.predicted, one.actual) for one in mistakes.surest]
        [(0, 'cat', 'dog'), (2, 'dog', 'cat')]
    """
    check_integer("most", most, 1)
    check_integer("most_pairs", most_pairs, 1)
    targets, names = predictions.targets, predictions.class_names
    confidences, correct = confidence_and_correctness(predictions.inputs)
    rows = (~correct).nonzero().squeeze(1)
    confidences, predicted = confidences[rows], predictions.scores[rows].argmax(dim=1)
    order = confidences.argsort(descending=True, stable=True)[:most]
    actual = targets[rows[order]]
    probs = predictions.inputs.to_probs(at_least_float32(predictions.scores[rows[order]]))
    numbers = rows if predictions.row_numbers is None else predictions.row_numbers[rows]
    surest = [
        Mistake(row, names[said], confidence, names[true], actual_prob)
        for row, said, confidence, true, actual_prob in zip(
            numbers[order].tolist(),
            predicted[order].tolist(),
            confidences[order].tolist(),
            actual.tolist(),
            probs.gather(1, actual.unsqueeze(1)).squeeze(1).tolist(),
            strict=True,
        )
    ]
    cells, places, counts = torch.unique(
        targets[rows] * predictions.num_classes + predicted, return_inverse=True, return_counts=True
    )
    sums = torch.zeros(len(cells), dtype=torch.float64, device=targets.device)
    sums = sums.index_add(0, places, confidences.double())
    frequent = counts.argsort(descending=True, stable=True)[:most_pairs]
    pairs = [
        Confusion(names[cell // predictions.num_classes], names[cell % predictions.num_classes], count, total / count)
        for cell, count, total in zip(
            cells[frequent].tolist(), counts[frequent].tolist(), sums[frequent].tolist(), strict=True
        )
    ]
    return Mistakes(len(rows), int((confidences >= 0.9).sum()), surest, pairs)


def prepare_risk_coverage(predictions: Predictions) -> RiskCoverageCurve:
    """The risk-coverage curve of the top probability; samples of equal confidence are answered together.

    Examples:
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, 1]))
        >>> curve = prepare_risk_coverage(said)
        >>> [round(risk, 3) for risk in curve.risks], round(curve.aurc, 3)
        ([0.0, 0.5, 0.333], 0.278)
    """
    confidences, correct = confidence_and_correctness(predictions.inputs)
    curve = risk_coverage(confidences, correct)
    cuts = curve.is_cut.nonzero().squeeze(1)
    kept = torch.linspace(0, len(cuts) - 1, min(POINTS, len(cuts)), dtype=torch.float64, device=cuts.device)
    shown = cuts[kept.round().long()]
    return RiskCoverageCurve(
        coverages=curve.coverages[shown].tolist(),
        risks=curve.risks[shown].tolist(),
        thresholds=confidences.sort(descending=True).values[shown].double().tolist(),
        aurc=curve.area,
        best_aurc=_area_of_ranked(correct),
        coverage_at={f"{risk:g}": curve.coverage_at_risk(risk) for risk in RISKS},
    )


def _area_of_ranked(correct: Tensor) -> float:
    """AURC if every mistake were ranked behind every right answer."""
    ranks = torch.arange(1, len(correct) + 1, dtype=torch.float64, device=correct.device)
    return float(((ranks - correct.sum()).clamp(min=0.0) / ranks).mean())
