"""Intervals of calibration errors: which true errors would have given the one that was measured?"""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins, check_resampling
from metacal.functional.binning import BinStatistics, calibration_error, equal_width_statistics
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import read_inputs

HALVINGS = 24
"""Steps of the bisection for an end: an end is found to about 1e-7."""

LEAST_SPREAD = 1e-5
"""Variance below which a bin still counts as uncertain: a model that says 100 % may be wrong."""

ROUNDING = 1e-9
VALUES_AT_ONCE = 2**21


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval: float64 scalars.

    The interval is of the true value. A measured calibration error is too high on average, so the interval of a small
    one lies mostly below it.
    """

    estimate: Tensor
    low: Tensor
    high: Tensor

    @property
    def is_upper_bound(self) -> bool:
        """Whether the interval is one-sided: chance alone explains the error, so only its upper end says something."""
        return bool(self.low == 0.0)


@public
def calibration_error_interval(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    num_bins: int = 15,
    norm: str = "l1",
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Interval:
    """`expected_calibration_error` with the interval of the true error (see `error_interval`).

    The true error is that of endlessly many samples in the same bins.

    Args:
        logits: see `expected_calibration_error`, as for all arguments not explained here.
        probs: see there.
        targets: see there.
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        num_resamples: data sets drawn at each true error that is tried.
        level: coverage aimed at.
        seed: of the draws; the same seed gives the same interval.
        multilabel: see there.
        ignore_index: see there.
        validate: see there.

    Examples:
        >>> import torch
        >>> probs = torch.full((2000,), 0.8)
        >>> interval = calibration_error_interval(probs=probs, targets=(torch.arange(2000) < 1400).long())
        >>> [round(value.item(), 2) for value in interval], interval.is_upper_bound
        ([0.1, 0.08, 0.12], False)
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, ("l1", "l2", "max"))
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    statistics = equal_width_statistics(*confidence_and_correctness(inputs), num_bins)
    return error_interval(statistics, norm, num_resamples=num_resamples, level=level, seed=seed)


def error_interval(
    statistics: BinStatistics,
    norm: str = "l1",
    *,
    smoothing: Tensor | None = None,
    noise: Tensor | None = None,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    r"""Interval of the true `calibration_error` of one set of bins, by test inversion.

    A line of hypotheses runs from a calibrated model through the measured one to worse ones: on it, the gap of bin m
    has the size :math:`\max(|g_m| - \lambda c_m (1 - c_m), 0)`, with :math:`g_m` the measured gap and :math:`c_m` the
    mean confidence. These are the likeliest gaps among all with the same error. Under each hypothesis data sets are
    drawn; it is kept unless the estimate lies in a tail of their errors, and the interval runs over the true errors of
    those that are kept.

    An error is never below 0, but the estimate of a calibrated model is never 0 either. An estimate below what such a
    model typically gets counts as that; hypotheses too near to 0 to fail for so low an estimate fail in the upper tail
    only, which then holds ``1 - level`` instead of half of it. So the interval changes from one-sided to two-sided
    without losing coverage (after Feldman and Cousins 1998).

    Args:
        statistics: over bins ``(M,)``, with at least one sample.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        smoothing: ``(M, M)``, applied to the weighted gaps before the l1 norm.
        noise: standard normal ``(num_resamples, M)``, where bins do not scatter independently.
        num_resamples: data sets drawn at each hypothesis, from the same random numbers.
        level: coverage aimed at.
        seed: of the draws.
    """
    check_resampling(num_resamples, level, seed)
    size = int(statistics.total)
    if not size:
        raise InvalidValueError("`statistics` must hold at least one sample, got none.")
    if size < 0:  # a confidence was NaN, and nobody checked
        undefined = statistics.edges.new_full((), torch.nan)
        return Interval(undefined, undefined, undefined)
    line = _Hypotheses(statistics, norm, smoothing, noise, num_resamples, seed)
    estimate = calibration_error(statistics, norm) if smoothing is None else line.error(statistics.gaps)
    calibrated = line.draw(estimate.new_ones(1))[0]
    typical = calibrated.median()
    highest = torch.maximum(estimate, typical).clamp(
        min=0.5 / size
    )  # answers are counted: less is as good as half of one
    tail = 0.5 * (1.0 - level)
    before, after = estimate.new_tensor([-1.0, -1.0]), estimate.new_tensor([1.0, 1.0])  # places of the two ends
    for _ in range(HALVINGS):
        middle = 0.5 * (before + after)
        for_low, for_high = line.draw(middle)
        upper_tail = torch.where(_share(for_low <= typical) > tail, 2.0 * tail, tail)
        is_low_kept, is_high_kept = _share(for_low >= estimate) >= upper_tail, _share(for_high <= highest) > tail
        goes_on = torch.stack((is_low_kept, ~is_high_kept))
        before, after = torch.where(goes_on, middle, before), torch.where(goes_on, after, middle)
    low, high = line.error(line.gaps(torch.stack((before[0], after[1]))))
    is_chance = _share(calibrated >= estimate) >= 2.0 * tail
    low = torch.where(is_chance, 0.0, low)
    return Interval(estimate, low, torch.maximum(low, high))  # a single draw finds one place for both


class _Hypotheses:
    """The line of hypotheses: a place in [-1, 1] is as wrong as can be at -1, as measured at 0, calibrated at 1."""

    def __init__(
        self,
        statistics: BinStatistics,
        norm: str,
        smoothing: Tensor | None,
        noise: Tensor | None,
        num_resamples: int,
        seed: int,
    ) -> None:
        self.norm, self.smoothing = norm, smoothing
        self.size = float(statistics.total)
        self.confidences, self.weights = statistics.confidences.clamp(0.0, 1.0), statistics.weights
        self.spreads = (self.confidences * (1.0 - self.confidences)).clamp(min=LEAST_SPREAD)
        gaps = statistics.gaps
        if smoothing is not None:
            gaps = (
                (self.weights * gaps) @ smoothing / (self.weights @ smoothing).clamp(min=torch.finfo(gaps.dtype).tiny)
            )
        self.sizes, self.sides = gaps.abs(), torch.where(gaps > 0.0, 1.0, -1.0)
        generator = torch.Generator(device=self.weights.device).manual_seed(seed)
        shape = (num_resamples, statistics.num_bins)
        normal = torch.randn(2, *shape, generator=generator, device=self.weights.device)
        self.noise = normal[0] if noise is None else noise
        # How many samples fall into each bin is chance as well; the largest gap does not weigh its bin.
        scatter = normal[1] * self.weights.sqrt().float()
        scatter = scatter - scatter.sum(1, keepdim=True) * self.weights.float()
        self.shares = (self.weights.float() + scatter / self.size**0.5).clamp(min=0.0)
        if norm == "max":
            self.shares = self.weights.float().expand(shape)

    def gaps(self, places: Tensor) -> Tensor:
        """Accuracy minus confidence of each bin under the hypotheses at ``places``: ``(E,) -> (E, M)``."""
        shifts = (places / (1.0 - places.abs()).clamp(min=1e-9)).unsqueeze(-1)
        room_above, room_below = 1.0 - self.confidences, self.confidences
        sizes = (self.sizes - shifts * self.spreads).clamp(min=0.0).minimum(room_above.maximum(room_below))
        has_room = sizes <= torch.where(self.sides > 0.0, room_above, room_below) + ROUNDING
        return sizes * torch.where(has_room, self.sides, -self.sides)  # what one side cannot hold goes to the other

    def error(self, gaps: Tensor) -> Tensor:
        """The true error where the bins have these gaps: ``(..., M) -> (...)``."""
        return self._measure(gaps * self.weights)

    def draw(self, places: Tensor) -> Tensor:
        """Errors of data sets drawn under the hypotheses at ``places``: ``(E,) -> (E, R)``."""
        gaps = self.gaps(places)
        accuracies = (self.confidences + gaps).clamp(0.0, 1.0)
        deviations = (self.weights * accuracies * (1.0 - accuracies) / self.size).sqrt()
        gaps, deviations = gaps.float().unsqueeze(1), deviations.float().unsqueeze(1)
        at_once = max(1, VALUES_AT_ONCE // gaps.numel())
        parts = zip(torch.split(self.shares, at_once), torch.split(self.noise, at_once), strict=True)
        return torch.cat([self._measure(gaps * shares + deviations * noise) for shares, noise in parts], dim=1)

    def _measure(self, weighted: Tensor) -> Tensor:
        """Norm of weighted gaps, as in `calibration_error`."""
        if self.smoothing is not None:
            weighted = weighted @ self.smoothing.to(weighted.dtype)
        if self.norm == "l1":
            return weighted.abs().sum(-1)
        weights = self.weights.to(weighted.dtype).clamp(min=torch.finfo(weighted.dtype).tiny)
        if self.norm == "max":
            return (weighted / weights).abs().amax(-1)
        return (weighted.square() / weights).sum(-1).sqrt()


def _share(is_so: Tensor) -> Tensor:
    return is_so.double().mean()
