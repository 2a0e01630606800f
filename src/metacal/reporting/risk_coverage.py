"""Numbers of the risk-coverage curve: how many mistakes are left when the model may decline its least sure answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from metacal.evaluation.evaluation import RISKS
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.rejection import risk_coverage
from metacal.functional.confidence import confidence_and_correctness

POINTS = 200


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Risk (share of wrong answers among those given) against coverage (share of samples answered).

    Attributes:
        coverages: rising, about `POINTS` of them; the last is 1.
        risks: risk at each coverage, over the most confident samples.
        thresholds: the least confidence that is answered at each coverage.
        aurc: area under the full curve (mean risk over all coverages).
        best_aurc: that of a model with as many mistakes that ranks every one of them last.
        coverage_at: for each risk in `RISKS` (as text), the largest coverage whose risk is no higher; 0 if none is.
    """

    coverages: list[float]
    risks: list[float]
    thresholds: list[float]
    aurc: float
    best_aurc: float
    coverage_at: dict[str, float]


def prepare_risk_coverage(predictions: Predictions) -> RiskCoverageCurve:
    """The risk-coverage curve of the top probability; samples of equal confidence are answered together.

    Examples:
        >>> import torch
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
