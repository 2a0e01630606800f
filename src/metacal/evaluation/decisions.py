"""Decisions from predictions: rejection, out-of-distribution detection, thresholds and temperature scaling."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_integer, check_labels, check_samples, check_share
from metacal.functional.binning import BinStatistics, calibration_error, fill_equal_widths, is_first_top
from metacal.functional.boundary import public
from metacal.functional.equal_mass import sort_by_confidence
from metacal.functional.inputs import Inputs, at_least_float32
from metacal.functional.intervals import Z_95
from metacal.functional.temperature import TemperatureFit, fit_temperature

THRESHOLDS = tuple(step / 10 for step in range(1, 10))
FOLDS = 5
PRECISION = 1e-6
"""Relative error of a temperature up to which one step from that of all samples will do."""

LEAST = 1e-300


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
    ordered, right = (each.flip(0) for each in sort_by_confidence(at_least_float32(confidences), correct))
    wrong = (~right).double()
    _, groups, sizes = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    # Within a run of ties every sample carries the run's mean: the expectation over all orders.
    means = torch.zeros(len(sizes), dtype=torch.float64, device=wrong.device).index_add_(0, groups, wrong) / sizes
    counts = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    is_cut = torch.cat((groups[1:] != groups[:-1], groups.new_ones(1, dtype=torch.bool)))
    return RiskCoverage(counts / len(wrong), means[groups].cumsum(0) / counts, is_cut)


class Detection(NamedTuple):
    """How well a score separates in-distribution from out-of-distribution samples.

    Attributes:
        auroc: chance that a sample from inside scores higher than one from outside; ties count half.
        fpr95: share of the outside taken for inside by the threshold that keeps 95 % of the inside.
    """

    auroc: float
    fpr95: float


@public
def detection(inside: Tensor, outside: Tensor) -> Detection:
    """Compare scores ``(n,)`` of in-distribution samples with scores ``(m,)`` of out-of-distribution ones.

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
    for name in ("max_prob", "entropy"):
        found = detection(*(_certainty(probs, name) for probs in (inside, outside)))
        figures |= {f"ood_auroc_{name}": found.auroc, f"ood_fpr95_{name}": found.fpr95}
    return figures


def _certainty(probs: Tensor, name: str) -> Tensor:
    return probs.amax(dim=1) if name == "max_prob" else torch.special.xlogy(probs, probs).sum(dim=1)


class Threshold(NamedTuple):
    """Precision, recall and F1 when rows with a probability of class 1 of at least ``threshold`` are positive.

    Precision is None where no row is called positive, recall where none is, F1 where both are.
    """

    threshold: float
    precision: float | None
    recall: float | None
    f1: float | None
    share_positive: float
    is_best: bool = False  # has the highest F1 of all thresholds


class _Ranking(NamedTuple):
    """Counts of rows at or above each distinct probability, highest first."""

    values: Tensor
    hits: Tensor
    called: Tensor
    positives: int

    @classmethod
    def of(cls, scores: Tensor, is_positive: Tensor) -> "_Ranking":
        ordered, positive = (each.flip(0) for each in sort_by_confidence(scores.double(), is_positive))
        is_last = torch.cat((ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool, device=ordered.device)))
        hits = positive.cumsum(0)
        called = torch.arange(1, len(ordered) + 1, device=ordered.device)
        return cls(ordered[is_last], hits[is_last], called[is_last], int(is_positive.sum()))


def roc_auc(scores: Tensor, is_positive: Tensor) -> tuple[float, float, float]:
    """Area under the ROC curve with DeLong's 95 % interval on the logit scale; NaN unless both classes occur.

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
    for own, others in ((positive, negative), (negative, positive)):
        below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
        parts.append(0.5 * below.double() / len(others))
    area = parts[0].mean().item()
    variance = sum(part.var().item() / len(part) for part in parts if len(part) > 1)
    if not 0.0 < area < 1.0 or min(map(len, parts)) < 2:
        return area, math.nan, math.nan
    half = Z_95 * math.sqrt(variance) / (area * (1.0 - area))
    middle = math.log(area / (1.0 - area))
    return area, 1.0 / (1.0 + math.exp(half - middle)), 1.0 / (1.0 + math.exp(-half - middle))


def average_precision(scores: Tensor, is_positive: Tensor) -> float:
    """Average precision of class 1; NaN if it does not occur.

    Examples:
        >>> round(average_precision(torch.tensor([0.9, 0.8, 0.3]), torch.tensor([True, False, True])), 4)
        0.8333
    """
    ranked = _Ranking.of(scores, is_positive)
    if not ranked.positives:
        return math.nan
    gained = torch.diff(ranked.hits, prepend=ranked.hits.new_zeros(1))
    return float((gained.double() * ranked.hits / ranked.called).sum()) / ranked.positives


def threshold_table(scores: Tensor, is_positive: Tensor) -> list[Threshold]:
    """Return precision, recall and F1 at 0.1 to 0.9 and at the threshold with the best F1, sorted.

    Examples:
        >>> table = threshold_table(torch.tensor([0.9, 0.75, 0.35, 0.1]), torch.tensor([True, True, True, False]))
        >>> [(round(row.threshold, 2), row.f1) for row in table if row.is_best]
        [(0.35, 1.0)]
    """
    ranked = _Ranking.of(scores, is_positive)
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


@dataclass(frozen=True)
class TemperatureGain:
    """NLL and ECE before and after, on samples the temperature was not fitted on.

    Attributes:
        temperature: fitted on all samples: the one to use on new ones.
        at_bound: whether the temperature lies at an end of its range: these samples do not determine it.
        temperatures: float64 ``(n,)``: of each sample, fitted on the parts that it is not in.
    """

    temperature: float
    nll_before: float
    nll_after: float
    ece_before: float
    ece_after: float
    at_bound: bool
    temperatures: Tensor = field(repr=False, compare=False)

    @property
    def helps(self) -> bool:
        """Whether both NLL and ECE fall."""
        return self.nll_after < self.nll_before and self.ece_after < self.ece_before

    def scaled(self, logits: Tensor) -> Tensor:
        """The logits ``(n, K)``, each divided by the temperature fitted on the other folds."""
        return (logits - logits.amax(dim=1, keepdim=True)) / self.temperatures.to(logits.dtype).unsqueeze(1)

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures by name for JSON; values that are not finite become null."""
        figures = {name: value for name, value in vars(self).items() if name != "temperatures"}
        return {name: value if math.isfinite(value) else None for name, value in figures.items()}


@public
def temperature_gain(
    *,
    logits: Tensor,
    targets: Tensor,
    num_bins: int = 15,
    folds: int = FOLDS,
    seed: int = 0,
    before: tuple[float, float] | None = None,
) -> TemperatureGain | None:
    """Cross-fit a temperature over ``folds``: each is scaled by a fit on the others. None with < 2 samples.

    ``before`` are NLL and ECE of the logits, if they are known.

    Examples:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> logits = 2.0 * torch.randn(4000, 3, generator=generator)
        >>> targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
        >>> gain = temperature_gain(logits=3.0 * logits, targets=targets)
        >>> round(gain.temperature), gain.ece_after < gain.ece_before / 4
        (3, True)
    """
    check_integer("folds", folds, 2)
    check_labels("targets", targets)
    if logits.ndim != 2:
        raise InvalidValueError(f"`logits` must have shape (n, K), got {tuple(logits.shape)}.")
    if len(targets) < 2:
        return None
    inputs = Inputs(logits, targets.to(torch.int64), is_logits=True, keep=None, validate=False)
    whole, temperatures = _cross_fitted(inputs, min(folds, len(targets)), seed)
    nll, ece = _nll_and_ece(inputs, torch.ones_like(temperatures), num_bins) if before is None else before
    nll_after, ece_after = _nll_and_ece(inputs, temperatures, num_bins)
    return TemperatureGain(whole.temperature, nll, nll_after, ece, ece_after, whole.at_bound, temperatures)


def _cross_fitted(inputs: Inputs, folds: int, seed: int) -> tuple[TemperatureFit, Tensor]:
    """Return the fit to all samples, and the temperature fitted on the other folds for each sample, ``(n,)``.

    With many samples the latter are near the former: a single step of Halley's method then finds them to `PRECISION`,
    from derivatives of every part that are computed in one pass. Where it may not, they are fitted anew.
    """
    logits, targets = inputs.scores, inputs.targets
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed)).to(targets.device)
    part = torch.empty_like(order)
    part[order] = torch.arange(len(order), device=targets.device) % folds
    whole = fit_temperature(logits=logits, targets=targets, validate=False)
    inverse, others = 1.0 / whole.temperature, []
    sums = _derivatives(inputs, part, folds, inverse)
    for fold, (slope, curvature, third) in enumerate((sums.sum(dim=0) - sums).tolist()):
        newton = -slope / curvature if curvature > 0.0 else inverse
        step = newton / max(1.0 + 0.5 * newton * third / max(curvature, LEAST), 0.5)
        error = (step - newton) ** 2 / max(abs(step), LEAST) + 10.0 * abs(step) ** 3 / inverse**2
        if error <= PRECISION * inverse and not whole.at_bound:
            others.append(1.0 / (inverse + step))
        else:
            rows = part != fold
            others.append(fit_temperature(logits=logits[rows], targets=targets[rows], validate=False).temperature)
    return whole, torch.tensor(others, dtype=torch.float64, device=logits.device)[part]


def _derivatives(inputs: Inputs, part: Tensor, folds: int, inverse: float) -> Tensor:
    """float64 ``(folds, 3)``: the first three derivatives of each fold's summed NLL with respect to ``1 / T``."""
    sums = torch.zeros(folds, 3, dtype=torch.float64, device=part.device)
    first = 0
    for scores, targets in inputs.chunks(temporaries=4):
        ones = scores.new_ones(scores.shape[1])
        centred = scores - scores.amax(dim=1, keepdim=True)
        weights = (centred * inverse).exp_()
        total = weights @ ones
        mean, second, cube = ((weights.mul_(centred) @ ones).div_(total).double() for _ in range(3))
        variance = second - mean.square()
        slope = mean - centred.gather(1, targets.unsqueeze(1)).squeeze(1)
        rows = torch.stack((slope, variance, cube - mean * (3.0 * variance + mean.square())), dim=1)
        sums.index_add_(0, part[first : first + len(rows)], rows)
        first += len(rows)
    return sums


def _nll_and_ece(inputs: Inputs, temperatures: Tensor, num_bins: int) -> tuple[float, float]:
    """Return NLL and ECE of logits, each divided by its temperature."""
    losses = torch.zeros((), dtype=torch.float64, device=temperatures.device)
    statistics = BinStatistics.zeros(num_bins, device=temperatures.device)
    first = 0
    for scores, targets in inputs.chunks(temporaries=4):
        top = scores.amax(dim=1)
        some = temperatures[first : first + len(top)].to(scores.dtype).unsqueeze(1)
        scaled = (scores - top.unsqueeze(1)) / some
        at_target = scaled.gather(1, targets.unsqueeze(1)).sum(dtype=torch.float64)
        total = scaled.exp_() @ scaled.new_ones(scaled.shape[1])
        losses += total.log().sum(dtype=torch.float64) - at_target
        confidences = total.reciprocal_()
        correct = is_first_top(scores, targets, top, confidences > 0.5)
        statistics = statistics + fill_equal_widths(confidences, correct, num_bins, may_hold_nan=True)
        first += len(top)
    return losses.item() / first, calibration_error(statistics).item()
