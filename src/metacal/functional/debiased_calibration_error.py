"""Debiased calibration error: the binned error without the part that finite bins add by chance."""

import math

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import BinStatistics, calibration_error, equal_mass_statistics
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.expected_calibration_error import confidence_statistics
from metacal.functional.inputs import ScoreArguments, read_inputs


@public
def debiased_calibration_error(
    *, num_bins: int = 15, norm: str = "l2", binning: str = "equal_mass", **scores: Unpack[ScoreArguments]
) -> Tensor:
    """Calibration error with the bias of the plug-in estimate taken out (Kumar et al. 2019).

    A calibrated model has a plug-in error above zero because accuracies of finite bins scatter. See
    `debiased_error` for the two corrections. Bins with a single sample carry no information on that scatter and
    are left out of the l2 form. Args and errors as in `expected_calibration_error`, and:

    Args:
        num_bins: M.
        norm: ``"l2"`` (unbiased square, the paper's) or ``"l1"`` (normal approximation).
        binning: ``"equal_mass"`` (the paper's) or ``"equal_width"``.

    Examples:
        >>> import torch
        >>> probs = torch.full((1000,), 0.3)
        >>> targets = (torch.arange(1000) % 10 < 3).long()  # calibrated to the letter
        >>> debiased_calibration_error(probs=probs, targets=targets).item()
        0.0
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, ("l1", "l2"))
    check_choice("binning", binning, ("equal_mass", "equal_width"))
    inputs = read_inputs(**scores)
    if binning == "equal_width":
        return debiased_error(confidence_statistics(inputs, num_bins), norm)
    return debiased_error(equal_mass_statistics(*confidence_and_correctness(inputs), num_bins), norm)


def debiased_error(statistics: BinStatistics, norm: str = "l2") -> Tensor:
    r"""Debiased error of given statistics, float64 ``(...)``.

    ``l2``: root of the sum of :math:`w_m (\mathrm{gap}_m^2 - a_m (1 - a_m) / (n_m - 1))`, 0 where that is
    negative. ``l1``: twice the plug-in error minus its expectation if each bin's accuracy were normal around the
    observed one, :math:`\mathcal N(a_m, a_m (1 - a_m) / n_m)`: the mean of a folded normal, in closed form.
    """
    gaps, accuracies, counts = statistics.gaps, statistics.accuracies, statistics.counts.double()
    variances = accuracies * (1.0 - accuracies)
    if norm == "l2":
        known = statistics.counts > 1
        squares = torch.where(known, gaps.square() - variances / (counts - 1.0).clamp(min=1.0), 0.0)
        error = (statistics.weights * squares).sum(-1).clamp(min=0.0).sqrt()
        return error.masked_fill(statistics.total <= 0, torch.nan)
    expected = folded_normal_mean(gaps, (variances / counts.clamp(min=1.0)).sqrt())
    plug_in = calibration_error(statistics, "l1")
    return (2.0 * plug_in - (statistics.weights * expected).sum(-1)).clamp(min=0.0)


def folded_normal_mean(mean: Tensor, deviation: Tensor) -> Tensor:
    """Mean of ``|X|`` for X normal; ``|mean|`` where the deviation is 0."""
    safe = deviation.clamp(min=torch.finfo(deviation.dtype).tiny)
    ratio = mean / safe
    spread = deviation * math.sqrt(2.0 / math.pi) * torch.exp(-0.5 * ratio.square())
    return torch.where(deviation > 0, spread + mean * torch.erf(ratio / math.sqrt(2.0)), mean.abs())
