"""SB-ECE as a loss module."""

from torch import Tensor

from metacal.functional.arguments import check_num_bins, check_positive
from metacal.functional.soft_binned_ece import soft_binned_ece
from metacal.losses.base import Loss


class SBECE(Loss):
    """Soft-binned ECE of the batch; see `metacal.functional.soft_binned_ece`.

    Args:
        num_bins: M.
        temperature: T of the soft bins.
        power: p of the norm.
    """

    def __init__(self, num_bins: int = 15, temperature: float = 0.01, power: float = 2.0) -> None:
        super().__init__()
        check_num_bins(num_bins)
        check_positive("temperature", temperature)
        check_positive("power", power)
        self.num_bins, self.temperature, self.power = num_bins, temperature, power

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return soft_binned_ece(
            logits=logits, targets=targets, num_bins=self.num_bins, temperature=self.temperature, power=self.power
        )

    def extra_repr(self) -> str:
        """Arguments."""
        return f"num_bins={self.num_bins}, temperature={self.temperature}, power={self.power}"
