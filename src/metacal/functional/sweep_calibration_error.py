"""Monotonic-sweep calibration error: as many equal-mass bins as keep accuracy rising with confidence."""

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.arguments import check_choice
from metacal.functional.binning import BinStatistics, SortedSamples, calibration_error
from metacal.functional.boundary import public
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import ScoreArguments, read_inputs

MAX_BINS = 4096
"""Where the sweep ends even if accuracies still rise: finer bins no longer change the value, but cost n ** 2."""

BLOCK = 32


@public
def sweep_calibration_error(*, norm: str = "l1", **scores: Unpack[ScoreArguments]) -> Tensor:
    """Calibration error with the number of bins found from the data (ECE-sweep, Roelofs et al. 2022).

    The number of equal-mass bins grows from 1 until the bins' accuracies are no longer in rising order; the last
    number that kept the order is used. No number of bins to choose, and less bias than a fixed one. Args and errors
    as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([0.1, 0.3, 0.6, 0.8])
        >>> round(sweep_calibration_error(probs=probs, targets=torch.tensor([0, 0, 1, 1])).item(), 4)
        0.25
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    return calibration_error(sweep_statistics(*confidence_and_correctness(read_inputs(**scores))), norm)


def sweep_statistics(confidences: Tensor, correct: Tensor) -> BinStatistics:
    """Statistics over the largest number of equal-mass bins, counting up from 1, whose accuracies never fall."""
    samples = SortedSamples(confidences, correct)
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
