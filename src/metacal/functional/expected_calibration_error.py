"""Expected calibration error over bins of equal width or equal mass, and whether the samples are enough to tell."""

import math

from torch import Tensor
from typing_extensions import Unpack

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import (
    BinStatistics,
    calibration_error,
    check_statistics,
    equal_mass_statistics,
    fill_equal_widths,
)
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness, confidence_chunks
from metacal.functional.inputs import Inputs, ScoreArguments, read_inputs

SAMPLES_PER_BIN = 10


@public
def expected_calibration_error(*, num_bins: int = 15, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    r"""How far confidence and accuracy are apart, on average over bins of confidence.

    .. math:: \mathrm{ECE} = \sum_{m=1}^M \frac{|B_m|}{n} \left|\mathrm{acc}(B_m) - \mathrm{conf}(B_m)\right|

    with bins ``B_m = ((m - 1) / M, m / M]`` (0 belongs to the first). Sums are exact integers, so the value is
    independent of the order of samples and of how they are batched (to the bit for probabilities; the softmax of
    logits may itself round differently from one batch to another).

    Args:
        logits: scores ``(N, K, ...)`` before the softmax, or ``(N, ...)`` before the sigmoid. Any float dtype.
        probs: probabilities of the same shapes. Give exactly one of the two.
        targets: integer labels ``(N, ...)``. Scores of the same shape, ``(N,)``, are a binary model: the probability
            of "yes" is then measured against how often the answer was "yes".
        num_bins: M.
        norm: ``"l1"`` (ECE), ``"l2"`` (RMSCE) or ``"max"`` (MCE).
        multilabel: scores and targets are both ``(N, L, ...)``: L yes/no labels, measured as binary models are, pooled.
        ignore_index: targets with this value are left out.
        validate: check values (finite, in range, rows that sum to 1); if not, a NaN makes the result NaN. Shapes and
            dtypes are always checked.

    Returns:
        float64 scalar in [0, 1], on the device of the input.

    Raises:
        InvalidValueError: an argument is outside its domain; the message names it, the rule and the value.
        InvalidTypeError: an argument has the wrong type or dtype.

    Examples:
        >>> import torch
        >>> from metacal.functional import expected_calibration_error
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
        >>> targets = torch.tensor([0, 1, 1, 1])
        >>> round(expected_calibration_error(probs=probs, targets=targets, num_bins=5).item(), 4)
        0.25
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    return calibration_error(confidence_statistics(read_inputs(**scores), num_bins), norm)


@public
def adaptive_calibration_error(*, num_bins: int = 15, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    """As `expected_calibration_error`, over equal-mass bins: each holds n / M samples, as far as ties allow.

    Tied confidences share the lower bin, so the order of the samples does not matter; with fewer samples than
    bins some bins are empty and count for nothing.

    Examples:
        >>> import torch
        >>> probs, targets = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([0, 0, 1, 0])
        >>> round(adaptive_calibration_error(probs=probs, targets=targets, num_bins=2).item(), 4)
        0.25
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, ("l1", "l2", "max"))
    samples = confidence_and_correctness(read_inputs(**scores))
    return calibration_error(equal_mass_statistics(*samples, num_bins), norm)


@public
def bin_statistics(*, num_bins: int = 15, **scores: Unpack[ScoreArguments]) -> BinStatistics:
    """What `expected_calibration_error` is computed from: counts, confidence and right answers of equal-width bins.

    `noise_floor` and `sample_size_warning` say whether there are enough samples to tell.

    Examples:
        >>> import torch
        >>> probs, targets = torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0, 0])
        >>> bin_statistics(probs=probs, targets=targets, num_bins=5).counts.tolist()
        [0, 0, 0, 1, 1]
    """
    return confidence_statistics(read_inputs(**scores), num_bins)


def confidence_statistics(inputs: Inputs, num_bins: int) -> BinStatistics:
    """Equal-width statistics of the confidences of all samples, read chunk by chunk."""
    check_num_bins(num_bins)
    statistics = BinStatistics.zeros(num_bins, device=inputs.scores.device)
    for confidences, correct in confidence_chunks(inputs):
        found = fill_equal_widths(confidences, correct, num_bins, may_hold_nan=not inputs.validate)
        statistics = statistics + found
    return statistics


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
