"""Calibration errors: the distance of confidence and accuracy, over several kinds of bins and without bins."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.arguments import NORMS, check_choice, check_num_bins, check_threshold
from metacal.functional.binning import (
    BinStatistics,
    accumulate,
    calibration_error,
    confidence_and_correctness,
    confidence_chunks,
    equal_width_edges,
    equal_width_index,
    fill_equal_widths,
)
from metacal.functional.boundary import public
from metacal.functional.equal_mass import SortedSamples, equal_mass_statistics
from metacal.functional.inputs import Inputs, ScoreArguments, read_inputs

__all__ = [
    "adaptive_calibration_error",
    "bin_statistics",
    "classwise_calibration_error",
    "debiased_calibration_error",
    "expected_calibration_error",
    "smooth_calibration_error",
    "sweep_calibration_error",
]

MAX_BINS = 4096
"""Where the sweep ends even if accuracies still rise: finer bins no longer change the value, but cost n ** 2."""

BLOCK = 32
"""Numbers of bins that the sweep tries at once."""

GRID = 8192
"""Cells of [0, 1] on which smECE gathers residuals: bandwidths down to a few cells are resolved."""

BISECTIONS = 40


@public
def expected_calibration_error(*, num_bins: int = 15, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    r"""Mean distance of confidence and accuracy over confidence bins (ECE).

    .. math:: \mathrm{ECE} = \sum_{m=1}^M \frac{|B_m|}{n} \left|\mathrm{acc}(B_m) - \mathrm{conf}(B_m)\right|

    with bins ``B_m = ((m - 1) / M, m / M]`` (0 belongs to the first). Sums are exact integers, so the value is
    independent of the order of samples and of how they are batched (to the bit for probabilities; the softmax of
    logits may itself round differently from one batch to another).

    Args:
        logits: scores ``(N, K, ...)`` before the softmax, or ``(N, ...)`` before the sigmoid. Any float dtype.
        probs: probabilities of the same shapes. Give exactly one of the two.
        targets: integer labels ``(N, ...)``. Scores of the same shape, ``(N,)``, are a binary model: the probability
            of "yes" is then measured against how often the answer was "yes".
        num_bins: number of bins M.
        norm: ``"l1"`` (ECE), ``"l2"`` (RMSCE) or ``"max"`` (MCE).
        multilabel: scores and targets are both ``(N, L, ...)``: L yes/no labels, measured as binary models are, pooled.
        ignore_index: targets with this value are ignored.
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
    check_choice("norm", norm, NORMS)
    return calibration_error(confidence_statistics(read_inputs(**scores), num_bins), norm)


@public
def adaptive_calibration_error(*, num_bins: int = 15, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    """`expected_calibration_error` over equal-mass bins: each holds n / M samples, as far as ties allow.

    Tied confidences share the lower bin, so the order of the samples does not matter; with fewer samples than
    bins some bins are empty and count for nothing.
    """
    check_num_bins(num_bins)
    check_choice("norm", norm, NORMS)
    samples = confidence_and_correctness(read_inputs(**scores))
    return calibration_error(equal_mass_statistics(*samples, num_bins), norm)


@public
def bin_statistics(*, num_bins: int = 15, **scores: Unpack[ScoreArguments]) -> BinStatistics:
    """Counts, confidences and accuracies of equal-width bins, which determine `expected_calibration_error`.

    `noise_floor` and `sample_size_warning` say whether there are enough samples to tell.

    Examples:
        >>> import torch
        >>> probs, targets = torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0, 0])
        >>> bin_statistics(probs=probs, targets=targets, num_bins=5).counts.tolist()
        [0, 0, 0, 1, 1]
    """
    return confidence_statistics(read_inputs(**scores), num_bins)


def confidence_statistics(inputs: Inputs, num_bins: int) -> BinStatistics:
    """Equal-width statistics of all confidences, read in chunks."""
    check_num_bins(num_bins)
    statistics = BinStatistics.zeros(num_bins, device=inputs.scores.device)
    for confidences, correct in confidence_chunks(inputs):
        statistics += fill_equal_widths(confidences, correct, num_bins, may_hold_nan=not inputs.validate)
    return statistics


@public
def classwise_calibration_error(
    *, num_bins: int = 15, norm: str = "l1", threshold: float | None = None, **scores: Unpack[ScoreArguments]
) -> Tensor:
    """Mean over the classes (or the labels of a multilabel model) of the one-against-rest calibration error.

    K comes from the array: a class that never occurs in the targets counts as any other. Args and errors as in
    `expected_calibration_error`, and:

    Args:
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``, within a class; classes are averaged.
        threshold: leave out probabilities at or below it (a thousand classes are mostly near-zeros, which hide
            the rest); a class with none left is left out of the mean.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4]])
        >>> round(classwise_calibration_error(probs=probs, targets=torch.tensor([0, 1])).item(), 4)
        0.4
    """
    check_choice("norm", norm, NORMS)
    return calibration_error(class_statistics(read_inputs(**scores), num_bins, threshold), norm).nanmean()


def class_statistics(inputs: Inputs, num_bins: int, threshold: float | None = None) -> BinStatistics:
    """Equal-width statistics of each class against the rest, ``(K, M)``, read in chunks."""
    check_num_bins(num_bins)
    check_threshold(threshold)
    statistics = BinStatistics.zeros(inputs.num_classes, num_bins, device=inputs.scores.device)
    edges = equal_width_edges(num_bins, inputs.scores.device)
    for probs, outcomes, labels in one_against_rest(inputs):
        if threshold is not None:
            kept = ~(probs <= threshold)  # a NaN is kept, so that it is reported
            probs, outcomes, labels = probs[kept], outcomes[kept], labels[kept]
        index = equal_width_index(probs, num_bins).add_(labels, alpha=num_bins)
        statistics += accumulate(index, probs, outcomes, edges, inputs.num_classes, may_hold_nan=not inputs.validate)
    return statistics


def one_against_rest(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield ``(probs, outcomes, labels)``, flat: every class's probability, whether it is the target, its number."""
    if inputs.is_events:
        for scores, outcomes, labels in inputs.events():
            yield inputs.to_probs(scores), outcomes == 1, labels
        return
    classes = torch.arange(inputs.num_classes, device=inputs.scores.device)
    for scores, targets in inputs.chunks(temporaries=8):
        is_target = targets.unsqueeze(1) == classes
        yield inputs.to_probs(scores).reshape(-1), is_target.reshape(-1), classes.expand_as(is_target).reshape(-1)


@public
def debiased_calibration_error(
    *, num_bins: int = 15, norm: str = "l2", binning: str = "equal_mass", **scores: Unpack[ScoreArguments]
) -> Tensor:
    """Calibration error corrected for the bias of the plug-in estimate (Kumar et al. 2019).

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


@public
def sweep_calibration_error(*, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    """Calibration error with a number of bins chosen from the data (ECE-sweep, Roelofs et al. 2022).

    The number of equal-mass bins grows from 1 until the bins' accuracies are no longer in rising order; the last
    number that kept the order is used. No number of bins to choose, and less bias than a fixed one. Args and errors
    as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([0.1, 0.3, 0.6, 0.8])
        >>> round(sweep_calibration_error(probs=probs, targets=torch.tensor([0, 0, 1, 1])).item(), 4)
        0.25
    """
    check_choice("norm", norm, NORMS)
    return calibration_error(sweep_statistics(*confidence_and_correctness(read_inputs(**scores))), norm)


def sweep_statistics(confidences: Tensor, correct: Tensor) -> BinStatistics:
    """`sweep_samples` of samples in any order."""
    return sweep_samples(SortedSamples(confidences, correct))


def sweep_samples(samples: SortedSamples) -> BinStatistics:
    """Statistics over the largest number of equal-mass bins, counting up from 1, with non-decreasing accuracies."""
    device = samples.confidences.device
    most = min(len(samples), MAX_BINS)
    if not most:
        return samples.statistics(1)
    # One bin per sample: merging neighbours of a rising sequence leaves it rising, so all before it pass too.
    if most == len(samples) and bool(_never_falls(samples, torch.tensor([most], device=device))):
        return samples.statistics(most)
    for first in range(1, most + 1, BLOCK):
        numbers = torch.arange(first, min(first + BLOCK, most + 1), device=device)
        falls = (~_never_falls(samples, numbers)).nonzero()
        if len(falls):
            return samples.statistics(max(1, int(numbers[falls[0, 0]]) - 1))
    return samples.statistics(most)


def _never_falls(samples: SortedSamples, numbers: Tensor) -> Tensor:
    """Bool ``(B,)``: for each number of bins, whether accuracies over its non-empty bins are non-decreasing."""
    steps = torch.arange(int(numbers[-1]) + 1, device=numbers.device)
    # A row with fewer bins than the widest ends in empty ones.
    cuts = samples.cuts_at(torch.minimum(steps, numbers.unsqueeze(1)) * len(samples) // numbers.unsqueeze(1))
    counts = cuts.diff(dim=1)
    accuracies = samples.correct_before[cuts].diff(dim=1).double() / counts.clamp(min=1)
    highest_so_far = accuracies.masked_fill(counts == 0, -1.0).cummax(dim=1).values
    return ((accuracies[:, 1:] >= highest_so_far[:, :-1]) | (counts[:, 1:] == 0)).all(dim=1)


@public
def smooth_calibration_error(**scores: Unpack[ScoreArguments]) -> Tensor:
    """Calibration error by kernel smoothing (Blasiok and Nakkiran 2023), without bins.

    See `smooth_error`. Args and errors as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> probs = torch.full((1000,), 0.5)
        >>> round(smooth_calibration_error(probs=probs, targets=(torch.arange(1000) < 700).long()).item(), 3)
        0.2
    """
    return smooth_error(*confidence_and_correctness(read_inputs(**scores)))


def smooth_error(confidences: Tensor, correct: Tensor, bisections: int = BISECTIONS) -> Tensor:
    r"""SmECE of given confidences, float64 scalar.

    With residuals :math:`r_i = y_i - c_i` and :math:`K_\sigma` a Gaussian reflected at 0 and 1,

    .. math:: \mathrm{smECE}_\sigma = \int_0^1 \Big|\frac1n \sum_i K_\sigma(t, c_i) r_i\Big| \, dt

    falls as :math:`\sigma` grows; the error is where the two meet, :math:`\sigma^* = \mathrm{smECE}_{\sigma^*}`.
    A reflected Gaussian is diagonal in the cosine basis, so one transform of the residuals, gathered on a fine
    grid, serves every bandwidth that the bisection tries; ``bisections`` halve its bracket, the unit interval.
    """
    if not len(confidences):
        return torch.full((), torch.nan, dtype=torch.float64, device=confidences.device)
    cells = _deposit(confidences, correct)
    spectrum = torch.fft.rfft(torch.cat((cells, cells.flip(0))))  # even, so that a convolution reflects at both ends
    frequencies = math.pi * torch.arange(len(spectrum), dtype=torch.float64, device=confidences.device)

    def error_at(bandwidth: Tensor) -> Tensor:
        smoothed: Tensor = torch.fft.irfft(spectrum * torch.exp(-0.5 * (frequencies * bandwidth).square()), n=2 * GRID)
        return smoothed[:GRID].abs().sum()

    low = torch.full((), 1.0 / GRID, dtype=torch.float64, device=confidences.device)
    high = torch.ones_like(low)
    with torch.no_grad():
        for _ in range(bisections):  # always as many, so that a GPU is never asked for a decision
            middle = 0.5 * (low + high)
            is_below = error_at(middle) > middle
            low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
    bandwidth = 0.5 * (low + high)
    error = error_at(bandwidth)
    if not error.requires_grad:
        return error
    # The bandwidth is the error: by the implicit function theorem its own move divides the gradient by 1 - slope.
    step = 1e-4 * bandwidth
    with torch.no_grad():
        slope = (error_at(bandwidth + step) - error_at(bandwidth - step)) / (2.0 * step)
    return error.detach() + (error - error.detach()) / (1.0 - slope)


def _deposit(confidences: Tensor, correct: Tensor) -> Tensor:
    """float64 ``(GRID,)``: mean residuals at cell centres, each shared linearly between its two neighbours."""
    residuals = (correct.double() - confidences.double()) / len(confidences)
    position = (confidences.double().clamp(0.0, 1.0) * GRID - 0.5).clamp(0.0, GRID - 1.0)
    lower = position.floor().clamp(max=GRID - 2)
    share = position - lower
    cells = lower.long().clamp_(0, GRID - 2)  # of a NaN any cell will do: its residual makes the whole grid NaN
    grid = residuals.new_zeros(GRID)
    grid = grid.index_add(0, cells, residuals * (1.0 - share))
    return grid.index_add(0, cells + 1, residuals * share)
