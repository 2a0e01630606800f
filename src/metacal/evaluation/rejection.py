"""Reject by confidence: selective prediction (risk, coverage) and out-of-distribution detection (AUROC, FPR95)."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_samples, check_share
from metacal.functional.boundary import public


class RiskCoverage(NamedTuple):
    """Risk at every coverage, from the most confident sample to all.

    Attributes:
        coverages: float64 ``(n,)``: 1/n, 2/n, ... 1.
        risks: float64 ``(n,)``: share wrong among so many of the most confident; tied samples count as in random order.
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
    """Sort by confidence ``(n,)`` and count errors.

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


class Detection(NamedTuple):
    """How well a score separates samples inside the distribution from those outside.

    Attributes:
        auroc: chance that a sample from inside scores higher than one from outside; ties count half.
        fpr95: share of the outside taken for inside by the threshold that keeps 95 % of the inside.
    """

    auroc: float
    fpr95: float


@public
def detection(inside: Tensor, outside: Tensor) -> Detection:
    """Compare scores ``(n,)`` of samples inside with scores ``(m,)`` of samples outside.

    Examples:
        >>> import torch
        >>> detection(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.75, 0.2]))
        Detection(auroc=0.8333333333333334, fpr95=0.5)
    """
    if not len(inside) or not len(outside):
        raise InvalidValueError(f"`inside` and `outside` must hold samples, got {len(inside)} and {len(outside)}.")
    inside, outside = inside.double(), outside.double()
    for name, scores in (("inside", inside), ("outside", outside)):
        if bool(scores.isnan().any()):
            raise InvalidValueError(f"`{name}` must hold numbers, got nan.")
    ordered = outside.sort().values
    below = torch.searchsorted(ordered, inside.contiguous())
    not_above = torch.searchsorted(ordered, inside.contiguous(), right=True)
    auroc = (below + not_above).double().mean().item() / (2 * len(outside))
    keep = -(-19 * len(inside) // 20)  # 95 %, rounded up, in whole numbers
    threshold = inside.sort(descending=True).values[keep - 1]
    return Detection(auroc, (outside >= threshold).double().mean().item())


@public
def ood_figures(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """AUROC and FPR95 of the top probability and of the entropy, from probabilities ``(n, K)`` and ``(m, K)``."""
    figures: dict[str, float] = {}
    for name, score in (("max_prob", _max_prob), ("entropy", _negative_entropy)):
        found = detection(score(inside), score(outside))
        figures |= {f"ood_auroc_{name}": found.auroc, f"ood_fpr95_{name}": found.fpr95}
    return figures


def _max_prob(probs: Tensor) -> Tensor:
    return probs.amax(dim=1)


def _negative_entropy(probs: Tensor) -> Tensor:
    products: Tensor = torch.special.xlogy(probs, probs)
    return products.sum(dim=1)
