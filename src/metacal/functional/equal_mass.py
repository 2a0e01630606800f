"""Equal-mass bins: edges at the quantiles of the confidences themselves.

Tied confidences always share a bin, so the result does not depend on the order of the samples; where ties or
a small n leave fewer than M groups, bins are empty and count for nothing.
"""

import torch
from torch import Tensor

from metacal.functional.arguments import check_num_bins, check_samples
from metacal.functional.binning import BinStatistics, mark_nan, to_units
from metacal.functional.boundary import public
from metacal.functional.inputs import at_least_float32


class SortedSamples:
    """Confidences in ascending order with prefix sums, from which any number of equal-mass bins is read off.

    Args:
        confidences: ``(n,)`` in [0, 1], of any float dtype; half precision is widened to float32.
        correct: bool ``(n,)``.
        is_sorted: whether the confidences are in ascending order already.
    """

    def __init__(self, confidences: Tensor, correct: Tensor, is_sorted: bool = False) -> None:
        self.confidences = at_least_float32(confidences)
        if not is_sorted:
            self.confidences, order = torch.sort(self.confidences)
            correct = correct[order]
        self.correct_before = _prefix_sums(correct.to(torch.int64))
        self.units_before = _prefix_sums(to_units(self.confidences))

    def __len__(self) -> int:
        return len(self.confidences)

    def cuts_at(self, wanted: Tensor) -> Tensor:
        """Move cuts, given as numbers of samples below, up to the end of the run of ties that they fall into."""
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


def _prefix_sums(values: Tensor) -> Tensor:
    """int64 ``(n,)`` -> ``(n + 1,)``, starting with 0."""
    return torch.cat((values.new_zeros(1), values.cumsum(0)))
