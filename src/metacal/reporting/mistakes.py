"""The most confident mistakes, the most frequent confusions, and the risk at each coverage."""

from dataclasses import dataclass

import torch

from metacal.evaluation.decisions import risk_coverage
from metacal.evaluation.evaluation import RISKS
from metacal.evaluation.predictions import Predictions
from metacal.functional.arguments import check_integer
from metacal.functional.binning import confidence_and_correctness
from metacal.functional.inputs import at_least_float32

POINTS = 200


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction; rows are counted from 0."""

    row: int
    predicted: str
    confidence: float
    actual: str
    actual_prob: float  # the probability that the model gave to the true class


@dataclass(frozen=True)
class Confusion:
    """How often one class was predicted as another, and the mean confidence."""

    actual: str
    predicted: str
    count: int
    confidence: float


@dataclass(frozen=True)
class Mistakes:
    """A summary of mistakes: the most confident ones (ties by row), and the most frequent confusions."""

    count: int
    confident: int  # those with a confidence of at least 0.9
    surest: list[Mistake]
    pairs: list[Confusion]


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Risk (error among accepted samples) by coverage (share of accepted samples)."""

    coverages: list[float]  # rising, about `POINTS` of them; the last is 1
    risks: list[float]
    thresholds: list[float]  # the least confidence that is answered at each coverage
    aurc: float  # mean risk over all coverages
    best_aurc: float  # that of a model with as many mistakes that ranks every one of them last
    coverage_at: dict[str, float]  # for each risk in `RISKS` the largest coverage whose risk is no higher; 0 if none is


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
    columns = (numbers[order], predicted[order], confidences[order], actual, probs.gather(1, actual.unsqueeze(1))[:, 0])
    surest = [
        Mistake(row, names[said], confidence, names[true], actual_prob)
        for row, said, confidence, true, actual_prob in zip(*(each.tolist() for each in columns), strict=True)
    ]
    pairs = targets[rows] * predictions.num_classes + predicted
    cells, places, counts = torch.unique(pairs, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(cells), dtype=torch.float64, device=targets.device)
    means = sums.index_add(0, places, confidences.double()) / counts
    frequent = counts.argsort(descending=True, stable=True)[:most_pairs]
    confusions = [
        Confusion(names[cell // predictions.num_classes], names[cell % predictions.num_classes], count, mean)
        for cell, count, mean in zip(*(each[frequent].tolist() for each in (cells, counts, means)), strict=True)
    ]
    return Mistakes(len(rows), int((confidences >= 0.9).sum()), surest, confusions)


def prepare_risk_coverage(predictions: Predictions) -> RiskCoverageCurve:
    """The risk-coverage curve of the top probability; samples of equal confidence are accepted together."""
    confidences, correct = confidence_and_correctness(predictions.inputs)
    curve = risk_coverage(confidences, correct)
    cuts = curve.is_cut.nonzero().squeeze(1)
    kept = torch.linspace(0, len(cuts) - 1, min(POINTS, len(cuts)), dtype=torch.float64, device=cuts.device)
    shown = cuts[kept.round().long()]
    ranks = torch.arange(1, len(correct) + 1, dtype=torch.float64, device=correct.device)
    ranked = ((ranks - correct.sum()).clamp(min=0.0) / ranks).mean()  # every mistake behind every right answer
    return RiskCoverageCurve(
        coverages=curve.coverages[shown].tolist(),
        risks=curve.risks[shown].tolist(),
        thresholds=confidences.sort(descending=True).values[shown].double().tolist(),
        aurc=curve.area,
        best_aurc=float(ranked),
        coverage_at={f"{risk:g}": curve.coverage_at_risk(risk) for risk in RISKS},
    )
