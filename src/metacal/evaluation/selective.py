"""Selective prediction: how often the model is wrong if it may abstain where it is least sure."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_samples, check_share
from metacal.functional.boundary import public


class RiskCoverage(NamedTuple):
    """Risk at every coverage, from the surest sample to all.

    Attributes:
        coverages: float64 ``(n,)``: 1/n, 2/n, ... 1.
        risks: float64 ``(n,)``: share wrong among so many of the surest; tied samples count as in random order.
        is_cut: bool ``(n,)``: where a threshold on the confidence can cut, that is not within a run of ties.
    """

    coverages: Tensor
    risks: Tensor
    is_cut: Tensor

    @property
    def area(self) -> float:
        """Mean risk over all coverages (AURC)."""
        return self.risks.mean().item()

    def coverage_at_risk(self, risk: float) -> float:
        """The largest coverage whose risk is at most ``risk``; 0 if there is none."""
        check_share("risk", risk)
        fits = self.coverages[self.is_cut & (self.risks <= risk + 1e-12)]
        return float(fits[-1]) if len(fits) else 0.0


@public
def risk_coverage(confidences: Tensor, correct: Tensor) -> RiskCoverage:
    """Sort by confidence and count errors.

    Args:
        confidences: ``(n,)``.
        correct: bool ``(n,)``.

    Examples:
        >>> import torch
        >>> curve = risk_coverage(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([True, True, False, True]))
        >>> [round(risk, 3) for risk in curve.risks.tolist()]
        [0.0, 0.0, 0.333, 0.25]
        >>> round(curve.area, 4), curve.coverage_at_risk(0.05)
        (0.1458, 0.5)
    """
    check_samples(confidences, correct)
    if not len(confidences):
        raise InvalidValueError("`confidences` must hold at least one sample, got none.")
    ordered, order = confidences.sort(descending=True)
    wrong = (~correct[order]).double()
    _, groups, sizes = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    # Within a run of ties every sample carries the run's mean: the expectation over all orders.
    means = torch.zeros(len(sizes), dtype=torch.float64, device=wrong.device).index_add_(0, groups, wrong) / sizes
    counts = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    is_cut = torch.cat((groups[1:] != groups[:-1], groups.new_ones(1, dtype=torch.bool)))
    return RiskCoverage(counts / len(wrong), means[groups].cumsum(0) / counts, is_cut)
