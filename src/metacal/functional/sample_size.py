"""Are there enough samples to tell? What a perfectly calibrated model would score by chance alone."""

import math

from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.binning import BinStatistics, check_statistics
from metacal.functional.boundary import public

SAMPLES_PER_BIN = 10


@public
def noise_floor(statistics: BinStatistics) -> Tensor:
    r"""The ECE to expect, by chance, of a perfectly calibrated model with these confidences: float64 ``(...)``.

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
    """One sentence when there are too few samples for the bins, else None (top-label statistics only).

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
