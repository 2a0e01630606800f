"""How certain a mean loss is: a few large losses among many small ones make its scatter lopsided."""

import math

from torch import Tensor

from metacal.functional.share_interval import Z_95

LEAST_VARIATION = 1e-6
"""Standard deviation over mean below which values count as equal: less is rounding."""

LEAST_VARIANCE = 1e-200
"""Less would underflow."""


def mean_interval(count: int, sums: tuple[float, float, float], most: float = math.inf) -> tuple[float, float]:
    r"""95 % interval of the mean of values in [0, ``most``], from the sums of the values, their squares and cubes.

    Hall's (1992): with :math:`g` the skewness over :math:`\sqrt{n}`, the studentised mean :math:`t` becomes
    :math:`t + g t^2 / 3 + g^2 t^3 / 27 + g / 6`, which is normal to second order; its two quantiles are turned back.
    NaN where the values say nothing about their scatter: a single one, equal ones, infinite or vanishing ones.

    Examples:
        >>> import torch
        >>> losses = torch.tensor([0.1] * 80 + [2.0] * 20)
        >>> low, high = mean_interval(100, power_sums(losses))
        >>> round(low, 3), round(high, 3)  # around 0.48
        (0.345, 0.65)
    """
    mean, square, cube = (value / count for value in sums)
    variance = square - mean * mean
    if count < 2 or not math.isfinite(cube) or not variance > max((LEAST_VARIATION * mean) ** 2, LEAST_VARIANCE):
        return math.nan, math.nan
    skewness = (cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5
    error = math.sqrt(variance / (count - 1))
    low, high = (mean - error * _untransformed(z, skewness / math.sqrt(count)) for z in (Z_95, -Z_95))
    return max(low, 0.0), min(high, most)


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
