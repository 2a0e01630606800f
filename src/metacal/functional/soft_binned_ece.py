"""SB-ECE: the soft-binned calibration error of Karandikar et al. 2021."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_num_bins, check_positive
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets

LEAST_MASS = 1e-5


@public
def soft_binned_ece(
    *, logits: Tensor, targets: Tensor, num_bins: int = 15, temperature: float = 0.01, power: float = 2.0
) -> Tensor:
    r"""Soft-binned ECE of a batch: soft bins, hard correctness.

    Memberships :math:`u_{im} = \mathrm{softmax}_m(-(c_i - \xi_m)^2 / T)` around centres
    :math:`\xi_m = (m - \tfrac12) / M`; :math:`A_m, C_m` the u-weighted means of correctness (which carries no gradient)
    and confidence; the value is :math:`(\sum_m w_m |A_m - C_m|^p)^{1/p}` with :math:`w_m = \sum_i u_{im} / n`.

    Args:
        logits: ``(n, K)``, or one logit per sample; see `dece`.
        targets: int ``(n,)``.
        num_bins: M.
        temperature: T.
        power: p; 2 for training, 1 to compare with ECE.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]])
        >>> round(soft_binned_ece(logits=logits, targets=torch.tensor([0, 1]), power=1).item(), 3)
        0.482
    """
    check_num_bins(num_bins)
    check_positive("temperature", temperature)
    check_positive("power", power)
    wide, targets = class_logits_and_targets(logits, targets)
    confidences, predictions = torch.softmax(wide, dim=1).max(dim=1)
    correct = (predictions == targets).to(wide.dtype)
    centres = (torch.arange(num_bins, dtype=wide.dtype, device=wide.device) + 0.5) / num_bins
    members = torch.softmax(-(confidences.unsqueeze(1) - centres).square() / temperature, dim=1)
    masses = members.sum(dim=0)
    gaps = (members * (correct - confidences).unsqueeze(1)).sum(dim=0) / masses.clamp(min=LEAST_MASS)
    # Relative to the largest gap, so that a high power does not underflow; a power below 1 has no slope to give at 0.
    largest = gaps.detach().abs().amax().clamp(min=torch.finfo(gaps.dtype).tiny)
    sizes = torch.where(gaps == 0.0, 0.0, (torch.where(gaps == 0.0, 1.0, gaps).abs() / largest) ** power)
    mean = (masses / len(targets) * sizes).sum()
    # A root has an infinite slope at 0; there, the error is at its least and its gradient is 0.
    safe = torch.where(mean > 0.0, mean, 1.0)
    return torch.where(mean > 0.0, largest * safe ** (1.0 / power), 0.0 * mean)
