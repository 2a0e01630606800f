"""Confidence intervals: of calibration errors by test inversion, of means, of shares, and of any statistic.

Which true errors would have given the one that was measured?
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.errors import InvalidValueError
from metacal.functional.arguments import NORMS, check_choice, check_resampling
from metacal.functional.binning import BinStatistics, calibration_error
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import bin_statistics
from metacal.functional.inputs import ScoreArguments

__all__ = ["Interval", "bootstrap_interval", "calibration_error_interval"]

HALVINGS = 24
"""Steps of the bisection for an end: an end is found to about 1e-7."""
LEAST_SPREAD = 1e-5
"""Variance below which a bin still counts as uncertain: a model that says 100 % may be wrong."""

ROUNDING = 1e-9
VALUES_AT_ONCE = 2**21
DRAWS_AT_ONCE = 2**21
LEAST_VARIATION = 1e-6
"""Standard deviation over mean below which values count as equal: less is rounding."""
LEAST_VARIANCE = 1e-200
"""Less would underflow."""
Z_95 = 1.959963984540054


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
        """Whether the interval is one-sided: chance alone explains the error, so only the upper end is informative."""
        return bool(self.low == 0.0)


@public
def calibration_error_interval(
    *,
    num_bins: int = 15,
    norm: str = "l1",
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    **scores: Unpack[ScoreArguments],
) -> Interval:
    """`expected_calibration_error` with the interval of the true error (see `error_interval`).

    The true error is that of endlessly many samples in the same bins. Args and errors as in
    `expected_calibration_error`, and:

    Args:
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        num_resamples: data sets drawn at each true error that is tried.
        level: coverage aimed at.
        seed: of the draws; the same seed gives the same interval.

    Examples:
        >>> import torch
        >>> probs = torch.full((2000,), 0.8)
        >>> interval = calibration_error_interval(probs=probs, targets=(torch.arange(2000) < 1400).long())
        >>> [round(value.item(), 2) for value in interval], interval.is_upper_bound
        ([0.1, 0.08, 0.12], False)
    """
    check_choice("norm", norm, NORMS)
    check_resampling(num_resamples, level, seed)
    statistics = bin_statistics(num_bins=num_bins, **scores)
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

    ``smoothing`` ``(M, M)`` is applied to the weighted gaps before the l1 norm; ``noise``, standard normal
    ``(num_resamples, M)``, is for bins that do not scatter independently.
    """
    check_resampling(num_resamples, level, seed)
    size = int(statistics.total)
    if not size:
        raise InvalidValueError("`statistics` must hold at least one sample, got none.")
    if size < 0:  # a confidence was NaN, with validate=False
        undefined = statistics.edges.new_full((), torch.nan)
        return Interval(undefined, undefined, undefined)
    device = statistics.counts.device
    generator = torch.Generator(device=device).manual_seed(seed)
    normal = torch.randn(2, num_resamples, statistics.num_bins, generator=generator, device=device)
    line = HypothesisLine(statistics, norm, smoothing, normal[0] if noise is None else noise, normal[1])
    estimate = calibration_error(statistics, norm) if smoothing is None else line.error(statistics.gaps)
    calibrated = line.draw(estimate.new_ones(1))[0]
    typical = calibrated.median()
    # Answers are counted: an error below that of half an answer is as good as that.
    highest = torch.maximum(estimate, typical).clamp(min=0.5 / size)
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


class HypothesisLine:
    """The line of hypotheses on [-1, 1]: most miscalibrated at -1, as measured at 0, calibrated at 1."""

    def __init__(
        self, statistics: BinStatistics, norm: str, smoothing: Tensor | None, noise: Tensor, count_noise: Tensor
    ) -> None:
        self.norm, self.smoothing = norm, smoothing
        self.size = float(statistics.total)
        self.confidences, self.weights = statistics.confidences.clamp(0.0, 1.0), statistics.weights
        self.spreads = (self.confidences * (1.0 - self.confidences)).clamp(min=LEAST_SPREAD)
        gaps = statistics.gaps
        if smoothing is not None:
            least = torch.finfo(gaps.dtype).tiny
            gaps = (self.weights * gaps) @ smoothing / (self.weights @ smoothing).clamp(min=least)
        self.sizes, self.sides = gaps.abs(), torch.where(gaps > 0.0, 1.0, -1.0)
        self.noise = noise
        # How many samples fall into each bin is chance as well; the largest gap does not weigh its bin.
        scatter = count_noise * self.weights.sqrt().float()
        scatter = scatter - scatter.sum(1, keepdim=True) * self.weights.float()
        self.shares = (self.weights.float() + scatter / self.size**0.5).clamp(min=0.0)
        if norm == "max":
            self.shares = self.weights.float().expand_as(count_noise)

    def gaps(self, places: Tensor) -> Tensor:
        """Accuracy minus confidence of each bin under the hypotheses at ``places``: ``(E,) -> (E, M)``."""
        shifts = (places / (1.0 - places.abs()).clamp(min=1e-9)).unsqueeze(-1)
        return self.bounded((self.sizes - shifts * self.spreads).clamp(min=0.0))

    def bounded(self, sizes: Tensor) -> Tensor:
        """Gaps of these sizes, on their sides, as far as accuracies in [0, 1] have room: ``(E, M) -> (E, M)``."""
        room_above, room_below = 1.0 - self.confidences, self.confidences
        sizes = sizes.minimum(room_above.maximum(room_below))
        has_room = sizes <= torch.where(self.sides > 0.0, room_above, room_below) + ROUNDING
        return sizes * torch.where(has_room, self.sides, -self.sides)  # what one side cannot hold goes to the other

    def error(self, gaps: Tensor) -> Tensor:
        """The true error for bins with these gaps: ``(..., M) -> (...)``."""
        return self.measure(gaps * self.weights)

    def draw(self, places: Tensor) -> Tensor:
        """Errors of data sets drawn under the hypotheses at ``places``: ``(E,) -> (E, R)``."""
        gaps = self.gaps(places)
        accuracies = (self.confidences + gaps).clamp(0.0, 1.0)
        deviations = (self.weights * accuracies * (1.0 - accuracies) / self.size).sqrt()
        gaps, deviations = gaps.float().unsqueeze(1), deviations.float().unsqueeze(1)
        at_once = max(1, VALUES_AT_ONCE // gaps.numel())
        parts = zip(torch.split(self.shares, at_once), torch.split(self.noise, at_once), strict=True)
        return torch.cat([self.measure(gaps * shares + deviations * noise) for shares, noise in parts], dim=1)

    def measure(self, weighted: Tensor) -> Tensor:
        """Norm of weighted gaps, as in `calibration_error`."""
        if self.smoothing is not None:
            weighted = weighted @ self.smoothing.to(weighted.dtype)
        if self.norm == "l1":
            return weighted.abs().sum(-1)
        weights = self.weights.to(weighted.dtype).clamp(min=torch.finfo(weighted.dtype).tiny)
        if self.norm == "max":
            return (weighted / weights).abs().amax(-1)
        return (weighted.square() / weights).sum(-1).sqrt()


class EvenLine(HypothesisLine):
    """Another line: under each hypothesis all gaps are the same number of standard errors.

    Of all gaps with one true error these hide best in the noise: the measured error is lowest on average.
    """

    def gaps(self, places: Tensor) -> Tensor:
        """As `HypothesisLine.gaps`; one standard error at 0."""
        number = ((1.0 - places) / (1.0 + places).clamp(min=1e-9)).unsqueeze(-1)
        return self.bounded(number * (self.spreads / (self.weights * self.size).clamp(min=1.0)).sqrt())


def _share(is_so: Tensor) -> Tensor:
    return is_so.double().mean()


@public
def bootstrap_interval(
    statistic: Callable[[Tensor], Tensor],
    samples: Tensor,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of any statistic; for calibration errors `error_interval` is better.

    ``statistic`` takes row numbers ``(R, n)``, one resample per row, and returns ``(R,)`` values; of ``samples`` only
    the length and the device are used. The "basic" interval: the spread of the resampled values around the estimate is
    turned over, which undoes the bias that resampling adds. It always holds the estimate itself.

    Examples:
        >>> import torch
        >>> values = torch.arange(100, dtype=torch.float64)
        >>> interval = bootstrap_interval(lambda rows: values[rows].mean(1), values)
        >>> 40 < interval.low < interval.estimate < interval.high < 60
        tensor(True)
    """
    check_resampling(num_resamples, level, seed)
    size, device = len(samples), samples.device
    if not size:
        raise InvalidValueError("`samples` must hold at least one sample, got none.")
    generator = torch.Generator(device=device).manual_seed(seed)
    estimate = statistic(torch.arange(size, device=device).unsqueeze(0))[0].double()
    values = []
    at_once = max(1, DRAWS_AT_ONCE // size)
    for first in range(0, num_resamples, at_once):
        shape = (min(at_once, num_resamples - first), size)
        values.append(statistic(torch.randint(size, shape, generator=generator, device=device)))
    tails = torch.tensor([(1.0 - level) / 2.0, (1.0 + level) / 2.0], dtype=torch.float64, device=device)
    low, high = torch.quantile(torch.cat(values).double(), tails)
    return Interval(
        estimate, torch.minimum(2.0 * estimate - high, estimate), torch.maximum(2.0 * estimate - low, estimate)
    )


def share_interval(successes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Wilson's 95 % interval of the share ``successes`` / ``counts``, float64; [0, 1] without samples.

    Three samples may all be right: resampling them would give a width of 0, Wilson's interval does not.
    """
    size = counts.double()
    share = successes.double() / size.clamp(min=1.0)
    square = Z_95**2
    centre = (share * size + square / 2.0) / (size + square)
    half = Z_95 * (share * (1.0 - share) * size + square / 4.0).sqrt() / (size + square)
    low, high = torch.where(successes == 0, 0.0, centre - half), torch.where(successes == counts, 1.0, centre + half)
    return low, high


def mean_interval(
    count: int, sums: tuple[float, float, float], most: float = math.inf, least: float = 0.0
) -> tuple[float, float]:
    r"""95 % interval of the mean of values in [``least``, ``most``], from the sums of values, squares and cubes.

    Hall's (1992): with :math:`g` the skewness over :math:`\sqrt{n}`, the studentised mean :math:`t` becomes
    :math:`t + g t^2 / 3 + g^2 t^3 / 27 + g / 6`, which is normal to second order; its two quantiles are turned back.
    NaN where the values say nothing about their scatter: a single one, equal ones, infinite or vanishing ones.
    """
    mean, square, cube = (value / count for value in sums)
    variance = square - mean * mean
    if count < 2 or not math.isfinite(cube) or not variance > max((LEAST_VARIATION * mean) ** 2, LEAST_VARIANCE):
        return math.nan, math.nan
    skewness = (cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5
    error = math.sqrt(variance / (count - 1))
    low, high = (mean - error * _untransformed(z, skewness / math.sqrt(count)) for z in (Z_95, -Z_95))
    return max(low, least), min(high, most)


def power_sums(values: Tensor) -> tuple[float, float, float]:
    """Sums of the values, their squares and their cubes, in float64."""
    values = values.double()
    squares = values * values
    return values.sum().item(), squares.sum().item(), (squares @ values).item()


def _untransformed(z: float, g: float) -> float:
    """The studentised mean whose transform is ``z``."""
    if abs(g) < 1e-6:
        return z
    root = 1.0 + g * (z - g / 6.0)
    return 3.0 / g * (math.copysign(abs(root) ** (1.0 / 3.0), root) - 1.0)
