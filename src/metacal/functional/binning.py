"""Confidence bins and their statistics: every binned measure is derived from `BinStatistics`.

Sums are exact. A confidence is counted in units of 2**-32 as a 64-bit integer, so sums do not depend on the
order or the grouping of samples: batches, workers and ranks add up to the bit. A float32 confidence of at
least 1/256 is represented exactly, any other to 1.2e-10. One bin holds up to 2**31 samples.
"""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import NORMS, check_choice, check_num_bins, check_samples
from metacal.functional.boundary import public
from metacal.functional.inputs import Inputs, at_least_float32, float_bits, row_sum_tolerance

__all__ = [
    "BinStatistics",
    "calibration_error",
    "equal_width_statistics",
    "noise_floor",
    "sample_size_warning",
]

SAMPLES_PER_BIN = 10
MOST_SAMPLES = 2**31 - 1
"""Samples that one bin may hold before its 64-bit sum could overflow."""

NOT_A_NUMBER = -(2**42)
"""Added to a count for confidences that are NaN, which integers cannot hold: a total below 0 makes every error NaN."""

FEW_ROWS, MANY_ROWS = 2**15, 2**18
"""Confidences that are binned together: fewer cost more for the calls, more do not stay in cache."""

UNITS = 2.0**32
"""Units of confidence in 1: the fixed-point scale of `BinStatistics.confidence_units`."""


@dataclass(frozen=True)
class BinStatistics:
    """Sufficient statistics of binned calibration; two over the same edges can be added.

    Leading dimensions, if any, are classes.

    Attributes:
        counts: int64 ``(..., M)``, samples in each bin; the first is negative if a confidence was NaN.
        correct_sums: int64 ``(..., M)``, those of them that were right (or "yes").
        confidence_units: int64 ``(..., M)``, their summed confidence in units of 2**-32.
        edges: float64 ``(M + 1,)``; bin m is ``(edges[m], edges[m + 1]]``, and the first also holds its lower edge.

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> one = equal_width_statistics(torch.tensor([0.3, 0.9]), torch.tensor([False, True]), num_bins=2)
        >>> two = equal_width_statistics(torch.tensor([0.8]), torch.tensor([False]), num_bins=2)
        >>> (one + two).counts.tolist()
        [1, 2]
    """

    counts: Tensor
    correct_sums: Tensor
    confidence_units: Tensor
    edges: Tensor

    @classmethod
    def zeros(cls, *shape: int, device: torch.device) -> "BinStatistics":
        """No samples yet, over equal-width bins; ``shape`` is ``(..., M)``."""
        zeros = torch.zeros(shape, dtype=torch.int64, device=device)
        return cls(zeros, zeros, zeros, equal_width_edges(shape[-1], device))

    def __add__(self, other: "BinStatistics") -> "BinStatistics":
        if not isinstance(other, BinStatistics):
            return NotImplemented
        same_edges = self.edges is other.edges or torch.equal(self.edges, other.edges)
        if self.counts.shape != other.counts.shape or not same_edges:
            raise InvalidValueError(
                f"`BinStatistics` can be added over the same bins only, got {tuple(self.counts.shape)} and "
                f"{tuple(other.counts.shape)} bins or different edges."
            )
        return BinStatistics(
            self.counts + other.counts,
            self.correct_sums + other.correct_sums,
            self.confidence_units + other.confidence_units,
            self.edges,
        )

    @property
    def num_bins(self) -> int:
        """M."""
        return self.counts.shape[-1]

    @property
    def total(self) -> Tensor:
        """int64 ``(...)``: samples over all bins."""
        return self.counts.sum(-1)

    @property
    def confidence_sums(self) -> Tensor:
        """float64 ``(..., M)``: summed confidence of each bin."""
        return self.confidence_units.double() / UNITS

    @property
    def accuracies(self) -> Tensor:
        """float64 ``(..., M)``: share of right samples; 0 in an empty bin."""
        return self.correct_sums.double() / self.counts.clamp(min=1)

    @property
    def confidences(self) -> Tensor:
        """float64 ``(..., M)``: mean confidence; 0 in an empty bin."""
        return self.confidence_sums / self.counts.clamp(min=1)

    @property
    def weights(self) -> Tensor:
        """float64 ``(..., M)``: share of all samples in each bin."""
        return self.counts.double() / self.total.clamp(min=1).unsqueeze(-1)

    @property
    def gaps(self) -> Tensor:
        """float64 ``(..., M)``: accuracy minus mean confidence; 0 in an empty bin."""
        # The difference is taken between exact integers in units, so large bins lose nothing.
        units = self.correct_sums * int(UNITS) - self.confidence_units
        return units.double() / UNITS / self.counts.clamp(min=1)


def check_statistics(statistics: BinStatistics) -> None:
    """Raise unless these are `BinStatistics`."""
    if not isinstance(statistics, BinStatistics):
        raise InvalidTypeError(
            f"`statistics` must be BinStatistics, as `bin_statistics` gives them, got {type(statistics).__name__}."
        )


@public
def calibration_error(statistics: BinStatistics, norm: str = "l1") -> Tensor:
    """Distance between accuracy and confidence over the bins, float64 ``(...)``.

    ``l1``: sum of ``w_m |gap_m|`` (ECE); ``l2``: root of the sum of ``w_m gap_m ** 2`` (RMSCE); ``max``: the largest
    ``|gap_m|`` (MCE), with ``w_m`` the share of samples in bin m. NaN without samples, or if a confidence was NaN.
    """
    check_statistics(statistics)
    check_choice("norm", norm, NORMS)
    gaps = statistics.gaps.abs()
    if norm == "max":
        error = gaps.amax(-1)
    elif norm == "l2":
        error = (statistics.weights * gaps.square()).sum(-1).sqrt()
    else:
        error = (statistics.weights * gaps).sum(-1)
    return error.masked_fill(statistics.total <= 0, torch.nan)


@public
def equal_width_statistics(confidences: Tensor, correct: Tensor, num_bins: int = 15) -> BinStatistics:
    """Statistics over M bins of equal width; confidences ``(n,)`` are in [0, 1], of any float dtype."""
    check_samples(confidences, correct)
    check_num_bins(num_bins)
    return fill_equal_widths(at_least_float32(confidences), correct, num_bins, may_hold_nan=True)


def fill_equal_widths(confidences: Tensor, correct: Tensor, num_bins: int, *, may_hold_nan: bool) -> BinStatistics:
    """`equal_width_statistics` of samples that were checked, in float32 or float64."""
    edges = equal_width_edges(num_bins, confidences.device)
    blocks = zip(torch.split(confidences, MANY_ROWS), torch.split(correct, MANY_ROWS), strict=True)
    parts = (
        accumulate(equal_width_bins(some, num_bins), some, right, edges, may_hold_nan=may_hold_nan)
        for some, right in blocks
    )
    return reduce(operator.add, parts)


def accumulate(
    index: Tensor,
    confidences: Tensor,
    correct: Tensor,
    edges: Tensor,
    num_classes: int | None = None,
    *,
    may_hold_nan: bool = False,
) -> BinStatistics:
    """Statistics of samples whose bins ``index`` are known.

    With ``num_classes``, ``index`` is ``class * M + bin`` and the statistics have shape ``(num_classes, M)``;
    ``may_hold_nan`` says that the values have not been validated.
    """
    shape = (len(edges) - 1,) if num_classes is None else (num_classes, len(edges) - 1)
    # Right and wrong samples go to two cells of each bin: two passes fill all three sums.
    cells = (index * 2).add_(correct).to(torch.int64)
    empty = torch.zeros(2 * math.prod(shape), dtype=torch.int64, device=index.device)
    counts = empty.scatter_add(0, cells, torch.ones_like(cells)).view(*shape, 2)
    units = empty.scatter_add(0, cells, to_units(confidences)).view(*shape, 2)
    totals = counts.sum(-1)
    if may_hold_nan:
        mark_nan(totals, confidences.sum().isnan())
    return BinStatistics(totals, counts[..., 1], units.sum(-1), edges)


def mark_nan(counts: Tensor, has_nan: Tensor) -> Tensor:
    """Add `NOT_A_NUMBER` in place to the first bin of counts ``(..., M)`` if there was a NaN, and return them."""
    counts[..., 0].add_(has_nan, alpha=NOT_A_NUMBER)
    return counts


def to_units(confidences: Tensor) -> Tensor:
    """Confidences in [0, 1], float32 or float64, as int64 counts of 2**-32, rounded to nearest."""
    return confidences.clamp(0.0, 1.0).mul_(UNITS).round_().to(torch.int64)


def equal_width_index(confidences: Tensor, num_bins: int) -> Tensor:
    """`equal_width_bins` in int64, which tensors can be indexed by."""
    return equal_width_bins(confidences, num_bins).to(torch.int64)


def equal_width_bins(confidences: Tensor, num_bins: int) -> Tensor:
    """int32 ``(n,)``: the bin m for which ``m / M < confidence <= (m + 1) / M``; 0 goes to the first bin.

    An edge is ``m / M`` rounded to the dtype of the confidences: 0.2 is the upper edge of its bin in float32 as
    in float64, whichever way the dtype rounds it. NaN goes to any bin.
    """
    # Scaled down slightly, the product never lands above the true bin and at most one below: one comparison settles it.
    # In int32, which takes half the time of int64 on a CPU.
    index = (confidences * (num_bins * (1.0 - 8.0 * torch.finfo(confidences.dtype).eps))).to(torch.int32)
    index.add_(confidences > (index + 1).to(confidences.dtype).div_(num_bins))
    return index.clamp_(0, num_bins - 1)  # rounding may take a confidence above 1


@lru_cache(maxsize=64)
def equal_width_edges(num_bins: int, device: torch.device) -> Tensor:
    """float64 ``(M + 1,)``: ``m / M``. The result is shared; do not modify it."""
    return torch.arange(num_bins + 1, dtype=torch.float64, device=device) / num_bins


@public
def noise_floor(statistics: BinStatistics) -> Tensor:
    r"""Expected ECE, by chance, of a perfectly calibrated model with these confidences: float64 ``(...)``.

    Bin m's accuracy then scatters around its confidence with variance :math:`c_m (1 - c_m) / n_m`, so the mean of
    its absolute gap is :math:`\sqrt{2 c_m (1 - c_m) / (\pi n_m)}` (normal approximation). A measured ECE near this
    value says nothing against the model.

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> statistics = equal_width_statistics(torch.full((100,), 0.5), torch.arange(100) < 55)
        >>> round(noise_floor(statistics).item(), 3)
        0.04
    """
    check_statistics(statistics)
    confidences = statistics.confidences
    variances = confidences * (1.0 - confidences) / statistics.counts.clamp(min=1)
    floor = (statistics.weights * (variances * 2.0 / math.pi).clamp(min=0.0).sqrt()).sum(-1)
    return floor.masked_fill(statistics.total < 0, math.nan)


@public
def sample_size_warning(statistics: BinStatistics) -> str | None:
    """Return a sentence if there are too few samples for the bins, else None (top-label statistics only).

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> sample_size_warning(equal_width_statistics(torch.full((20,), 0.5), torch.arange(20) < 11))
        '20 samples are too few for 15 bins: chance alone gives a calibrated model an ECE of about 0.089.'
    """
    check_statistics(statistics)
    if statistics.counts.ndim != 1:
        raise InvalidValueError(
            f"`statistics` must be of one set of bins, got {tuple(statistics.counts.shape)}; ask class by class."
        )
    samples, floor = int(statistics.total), float(noise_floor(statistics))
    if samples < 0:
        return "A confidence is NaN: nothing can be said of the samples."
    if samples >= SAMPLES_PER_BIN * statistics.num_bins:
        return None
    return (
        f"{samples} samples are too few for {statistics.num_bins} bins: chance alone gives a calibrated model an "
        f"ECE of about {floor:.3f}."
    )


def confidence_and_correctness(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return the confidence of each sample (float32 or wider) and whether it is correct, both ``(n,)``.

    For multiclass scores this is the top label's probability and whether the top label is the target; for
    yes/no events it is the probability of "yes" and whether the answer was "yes".
    """
    pairs = list(confidence_chunks(inputs))
    if not pairs:
        return at_least_float32(inputs.scores.new_zeros(0)), inputs.scores.new_zeros(0, dtype=torch.bool)
    return _joined(pairs)


def confidence_chunks(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``(confidences, correct)`` in chunks, so that memory is bounded for any number of rows."""
    pairs: list[tuple[Tensor, Tensor]] = []
    rows = 0
    for pair in _confidence_chunks(inputs):
        pairs.append(pair)
        rows += len(pair[0])
        if rows >= FEW_ROWS:
            yield _joined(pairs)
            pairs, rows = [], 0
    if pairs:
        yield _joined(pairs)


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(pairs) == 1:
        return pairs[0]
    confidences, correct = zip(*pairs, strict=True)
    return torch.cat(confidences), torch.cat(correct)


def _confidence_chunks(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            yield inputs.to_probs(scores), outcomes == 1
    else:
        # Two tied tops need twice their value within the row's sum, so above this bound a top is unique.
        unique_above = 0.5 if inputs.is_logits else 0.5 + row_sum_tolerance(inputs.scores.dtype)
        if not inputs.validate and not inputs.is_logits:
            unique_above = torch.inf  # the sums have not been checked
        has_no_signs = inputs.validate and not inputs.is_logits
        for scores, targets in inputs.chunks():
            ranked = float_bits(scores) if has_no_signs else scores
            top = ranked.amax(dim=1)
            confidences = top.view(scores.dtype)
            if inputs.is_logits:
                # Relative to the top, so that large logits lose nothing and two tied tops give at most 1/2 exactly.
                confidences = (scores - top.unsqueeze(1)).exp_().sum(dim=1).reciprocal_()
            yield confidences, is_first_top(ranked, targets, top, confidences > unique_above)


def is_first_top(scores: Tensor, targets: Tensor, top: Tensor, is_unique: Tensor) -> Tensor:
    """Whether each target is the first class with the top score: a faster ``scores.argmax(1) == targets``.

    On a CPU ``argmax`` costs several times ``amax``. The target is right if its score is the top one, except
    where an earlier class has the same score; only rows that may hold such a tie, those not known to have a unique
    ``top`` (each row's highest score), are compared again. Scores may be the bits of probabilities, too.
    """
    if scores.device.type != "cpu":
        return scores.argmax(dim=1) == targets
    correct = scores.gather(1, targets.unsqueeze(1)).squeeze(1) == top
    rows = torch.from_numpy(np.flatnonzero((correct & ~is_unique).numpy()))  # in a fraction of `nonzero`'s time
    if not len(rows):
        return correct
    lowest = -torch.inf if scores.is_floating_point() else 0
    others = scores.index_select(0, rows).scatter_(1, targets[rows].unsqueeze(1), lowest)
    tied = rows[others.amax(dim=1) == top[rows]]
    if len(tied):
        correct[tied] = scores[tied].argmax(dim=1) == targets[tied]
    return correct
