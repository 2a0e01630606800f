"""Bootstrap intervals: how far a measured calibration error could be off by the luck of the sample."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins, check_resampling
from metacal.functional.binning import (
    BinStatistics,
    accumulate,
    calibration_error,
    equal_width_edges,
    equal_width_index,
    equal_width_statistics,
)
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import at_least_float32, read_inputs

DRAWS_AT_ONCE = 2**21


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval: float64 scalars."""

    estimate: Tensor
    low: Tensor
    high: Tensor

    def within(self, least: float, most: float = math.inf) -> "Interval":
        """The same with its ends in the domain of the figure: turning a spread over may take them out of it."""
        return self._replace(low=self.low.clamp(least, most), high=self.high.clamp(least, most))


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
    """`expected_calibration_error` with a bootstrap interval.

    The interval is that of `bootstrap_interval`, except that it reaches down to 0 when chance alone would give a
    perfectly calibrated model an error as high as the estimate (see `calibrated_quantile`).

    Args:
        logits: see `expected_calibration_error`, as for all arguments not explained here.
        probs: see there.
        targets: see there.
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        num_resamples: how many times the samples are drawn again, with replacement.
        level: coverage aimed at.
        seed: of the draws; the same seed gives the same interval.
        multilabel: see there.
        ignore_index: see there.
        validate: see there.

    Examples:
        >>> import torch
        >>> probs = torch.full((2000,), 0.8)
        >>> interval = calibration_error_interval(probs=probs, targets=(torch.arange(2000) < 1400).long())
        >>> [round(value.item(), 2) for value in interval]
        [0.1, 0.08, 0.12]
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, ("l1", "l2", "max"))
    inputs = read_inputs(
        logits=logits,
        probs=probs,
        targets=targets,
        multilabel=multilabel,
        ignore_index=ignore_index,
        validate=validate,
    )
    confidences, correct = confidence_and_correctness(inputs)
    return binned_interval(confidences, correct, num_bins, norm, num_resamples=num_resamples, level=level, seed=seed)


def binned_interval(
    confidences: Tensor,
    correct: Tensor,
    num_bins: int = 15,
    norm: str = "l1",
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """`calibration_error_interval` of given confidences and correctness; its ends lie in [0, 1]."""
    confidences = at_least_float32(confidences)
    statistic = binned_statistic(confidences, correct, num_bins, norm)
    interval = bootstrap_interval(statistic, confidences, num_resamples=num_resamples, level=level, seed=seed)
    statistics = equal_width_statistics(confidences, correct, num_bins)
    chance = calibrated_quantile(statistics, (1.0 + level) / 2.0, norm, num_resamples=num_resamples, seed=seed)
    interval = interval.within(0.0, 1.0)
    return interval._replace(low=torch.where(interval.estimate <= chance, 0.0, interval.low))


@public
def bootstrap_interval(
    statistic: Callable[[Tensor], Tensor],
    samples: Tensor,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of any statistic.

    The "basic" interval: the spread of the resampled values around the estimate is turned over, which undoes the
    upward bias that resampling adds to an absolute error (quantiles of the resampled values themselves sit too
    high). It always holds the estimate itself.

    Args:
        statistic: takes row numbers ``(R, n)``, one resample per row, and returns ``(R,)`` values.
        samples: any tensor with one row per sample; only its length and device are used.
        num_resamples: R in all.
        level: coverage aimed at.
        seed: of the draws.

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
    return basic_interval(estimate, torch.cat(values), level)


def basic_interval(estimate: Tensor, values: Tensor, level: float = 0.95) -> Interval:
    """The "basic" interval of `bootstrap_interval`, given the values ``(R,)`` of the resamples."""
    tails = torch.tensor([(1.0 - level) / 2.0, (1.0 + level) / 2.0], dtype=torch.float64, device=values.device)
    low, high = torch.quantile(values.double(), tails)
    return Interval(
        estimate, torch.minimum(2.0 * estimate - high, estimate), torch.maximum(2.0 * estimate - low, estimate)
    )


def calibrated_quantile(
    statistics: BinStatistics, quantile: float, norm: str = "l1", *, num_resamples: int = 1000, seed: int = 0
) -> Tensor:
    """The error that a perfectly calibrated model with these confidences exceeds with a chance of ``1 - quantile``."""
    return torch.quantile(calibration_error(calibrated_bins(statistics, num_resamples, seed), norm), quantile)


def calibrated_bins(statistics: BinStatistics, num_resamples: int, seed: int = 0) -> BinStatistics:
    """Sets of bins ``(R, ..., M)`` as a perfectly calibrated model with these confidences would fill them.

    Right answers of each bin are drawn from a binomial with the bin's mean confidence.
    """
    generator = torch.Generator(device=statistics.counts.device).manual_seed(seed)
    shape = (num_resamples, *statistics.counts.shape)
    counts = statistics.counts.double().expand(shape).contiguous()
    chances = statistics.confidences.clamp(0.0, 1.0).expand(shape).contiguous()
    right = torch.binomial(counts, chances, generator=generator).long()
    return replace(statistics, counts=statistics.counts.expand(shape), correct_sums=right)


def binned_statistic(
    confidences: Tensor, correct: Tensor, num_bins: int = 15, norm: str = "l1"
) -> Callable[[Tensor], Tensor]:
    """Equal-width calibration error as a function of row numbers ``(R, n) -> (R,)``, for `bootstrap_interval`."""
    edges = equal_width_edges(num_bins, confidences.device)
    bins = equal_width_index(confidences, num_bins)

    def statistic(rows: Tensor) -> Tensor:
        offsets = torch.arange(len(rows), device=rows.device).unsqueeze(1) * num_bins
        index, draws = (bins[rows] + offsets).view(-1), rows.view(-1)
        return calibration_error(accumulate(index, confidences[draws], correct[draws], edges, len(rows)), norm)

    return statistic
