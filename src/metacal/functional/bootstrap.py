"""A bootstrap interval of any statistic."""

from collections.abc import Callable

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_resampling
from metacal.functional.boundary import public
from metacal.functional.error_interval import Interval

DRAWS_AT_ONCE = 2**21


@public
def bootstrap_interval(
    statistic: Callable[[Tensor], Tensor],
    samples: Tensor,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of any statistic of your own; calibration errors have a better one, `error_interval`.

    The "basic" interval: the spread of the resampled values around the estimate is turned over, which undoes the
    bias that resampling adds. It always holds the estimate itself.

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
    tails = torch.tensor([(1.0 - level) / 2.0, (1.0 + level) / 2.0], dtype=torch.float64, device=device)
    low, high = torch.quantile(torch.cat(values).double(), tails)
    return Interval(
        estimate, torch.minimum(2.0 * estimate - high, estimate), torch.maximum(2.0 * estimate - low, estimate)
    )
