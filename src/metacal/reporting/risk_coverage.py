"""Numbers of the risk-coverage curve: how many mistakes are left when the model may decline its least sure answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import read_inputs

RISKS = (0.01, 0.02, 0.05)
POINTS = 200


@dataclass(frozen=True)
class RiskCoverage:
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


def prepare_risk_coverage(predictions: Predictions) -> RiskCoverage:
    """The risk-coverage curve of the top probability; samples of equal confidence are answered together.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, 1]))
        >>> curve = prepare_risk_coverage(said)
        >>> [round(risk, 3) for risk in curve.risks], round(curve.aurc, 3)
        ([0.0, 0.5, 0.333], 0.278)
    """
    inputs = read_inputs(probs=predictions.probs, targets=predictions.targets, validate=False)
    confidences, correct = confidence_and_correctness(inputs)
    confidences, order = confidences.sort(descending=True)
    values, sizes = torch.unique_consecutive(confidences, return_counts=True)
    answered = sizes.cumsum(0)
    wrong = (~correct[order]).cumsum(0)[answered - 1]
    risks, coverages = wrong.double() / answered, answered.double() / len(correct)
    # Within a tie the expected number of mistakes grows evenly, so the curve's mean takes the straight line between.
    kept = torch.linspace(0, len(answered) - 1, min(POINTS, len(answered)), dtype=torch.float64).round().long()
    kept = kept.to(risks.device)
    return RiskCoverage(
        coverages=coverages[kept].tolist(),
        risks=risks[kept].tolist(),
        thresholds=values[kept].double().tolist(),
        aurc=float(_mean_risk(wrong, answered)),
        best_aurc=float(_mean_risk_of_ranked(int(wrong[-1]), len(correct), risks.device)),
        coverage_at={f"{risk:g}": _coverage_at(risk, risks, coverages) for risk in RISKS},
    )


def _mean_risk(wrong: Tensor, answered: Tensor) -> Tensor:
    """Mean over k = 1..n of the expected share of mistakes among the k surest, ties in any order."""
    sizes = torch.diff(answered, prepend=answered.new_zeros(1))
    before = wrong - torch.diff(wrong, prepend=wrong.new_zeros(1))
    group = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    rank = torch.arange(1, int(answered[-1]) + 1, device=sizes.device)
    into = (rank - (answered - sizes)[group]).double() / sizes[group]
    return ((before[group] + into * (wrong - before)[group]) / rank).mean()


def _mean_risk_of_ranked(mistakes: int, samples: int, device: torch.device) -> Tensor:
    rank = torch.arange(1, samples + 1, device=device)
    return ((rank - (samples - mistakes)).clamp(min=0).double() / rank).mean()


def _coverage_at(risk: float, risks: Tensor, coverages: Tensor) -> float:
    below = (risks <= risk).nonzero()
    return float(coverages[below[-1, 0]]) if len(below) else 0.0
