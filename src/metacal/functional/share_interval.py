"""How certain a share is: right answers among samples, of which there may be few."""

import torch
from torch import Tensor

Z_95 = 1.959963984540054


def share_interval(successes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """95 % interval of a share of ``successes`` out of ``counts``, float64: Wilson's, [0, 1] without samples.

    Three samples may all be right: resampling them would give a width of 0, Wilson's interval does not.

    Examples:
        >>> import torch
        >>> low, high = share_interval(torch.tensor([3, 90]), torch.tensor([3, 100]))
        >>> [round(value, 3) for value in low.tolist()], [round(value, 3) for value in high.tolist()]
        ([0.439, 0.826], [1.0, 0.945])
    """
    size = counts.double()
    share = successes.double() / size.clamp(min=1.0)
    square = Z_95**2
    centre = (share * size + square / 2.0) / (size + square)
    half = Z_95 * (share * (1.0 - share) * size + square / 4.0).sqrt() / (size + square)
    low, high = torch.where(successes == 0, 0.0, centre - half), torch.where(successes == counts, 1.0, centre + half)
    return low, high
