"""Bins with equally many samples each, from samples sorted by confidence."""

import numpy as np
import torch
from torch import Tensor

from metacal.functional.arguments import check_num_bins, check_samples
from metacal.functional.binning import BinStatistics, mark_nan, to_units
from metacal.functional.boundary import public
from metacal.functional.inputs import at_least_float32, float_bits

__all__ = ["equal_mass_statistics"]


def sort_by_confidence(confidences: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Sort samples ``(n,)``, float32 or float64 and bool, by ascending confidence; NaN last, ties in any order."""
    if confidences.device.type == "cpu" and len(confidences):
        bits = float_bits(confidences.detach())
        if bits.min() >= 0 and bits.max() < float_bits(confidences.new_tensor(2.0)):
            # Numbers in [0, 2) leave the two highest bits free: shifted, they make room for the answer, and NumPy sorts
            # integers in a fraction of the time that sorting with an index takes.
            keys = torch.from_numpy(np.sort((bits * 2).add_(correct).numpy()))
            return (keys >> 1).view(confidences.dtype), (keys & 1).bool()
    ordered, order = confidences.sort()
    return ordered, correct[order]


class SortedSamples:
    """Confidences in ascending order with prefix sums, from which equal-mass bins of any number are computed.

    Tied confidences always share a bin, so the result does not depend on the order of the samples; where ties or a
    small n leave fewer than M groups, bins are empty and count for nothing.
    """

    def __init__(self, confidences: Tensor, correct: Tensor) -> None:
        self.confidences, correct = sort_by_confidence(at_least_float32(confidences), correct)
        # Sums over all samples before each: (n + 1,), starting with 0.
        self.correct_before = torch.nn.functional.pad(correct.cumsum(0), (1, 0))
        self.units_before = torch.nn.functional.pad(to_units(self.confidences).cumsum(0), (1, 0))

    def __len__(self) -> int:
        return len(self.confidences)

    def cuts_at(self, wanted: Tensor) -> Tensor:
        """Move cuts, given as numbers of samples below, up to the end of a run of ties."""
        last_below = self.confidences[(wanted - 1).clamp(min=0)]
        ends = torch.searchsorted(self.confidences, last_below, right=True)
        return torch.where(wanted == 0, 0, ends)

    def statistics(self, num_bins: int) -> BinStatistics:
        """Statistics over M equal-mass bins."""
        if not len(self):
            return BinStatistics.zeros(num_bins, device=self.confidences.device)
        cuts = self.cuts_at(torch.arange(num_bins + 1, device=self.confidences.device) * len(self) // num_bins)
        edges = self.confidences.double()[(cuts - 1).clamp(min=0)]
        return BinStatistics(
            mark_nan(cuts.diff(), self.confidences[-1].isnan()),  # a sort puts NaN last
            self.correct_before[cuts].diff(),
            self.units_before[cuts].diff(),
            edges,
        )


@public
def equal_mass_statistics(confidences: Tensor, correct: Tensor, num_bins: int = 15) -> BinStatistics:
    """Statistics over M bins with equally many samples each (as far as ties allow).

    Examples:
        >>> import torch
        >>> confidences = torch.tensor([0.1, 0.2, 0.2, 0.2, 0.9, 0.95])
        >>> equal_mass_statistics(confidences, confidences > 0.5, num_bins=3).counts.tolist()
        [4, 0, 2]
    """
    check_samples(confidences, correct)
    check_num_bins(num_bins)
    return SortedSamples(confidences, correct).statistics(num_bins)
