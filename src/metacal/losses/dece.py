"""DECE as a loss module."""

from torch import Tensor

from metacal.functional.arguments import check_num_bins, check_positive
from metacal.functional.dece import dece
from metacal.losses.base import Loss


class DECE(Loss):
    """Differentiable expected calibration error of the batch; see `metacal.functional.dece`.

    Args:
        num_bins: M.
        tau_a: sharpness of the soft rank.
        tau_b: temperature of the soft bins.
    """

    def __init__(self, num_bins: int = 15, tau_a: float = 100.0, tau_b: float = 0.01) -> None:
        super().__init__()
        check_num_bins(num_bins)
        check_positive("tau_a", tau_a)
        check_positive("tau_b", tau_b)
        self.num_bins, self.tau_a, self.tau_b = num_bins, tau_a, tau_b

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return dece(logits=logits, targets=targets, num_bins=self.num_bins, tau_a=self.tau_a, tau_b=self.tau_b)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"num_bins={self.num_bins}, tau_a={self.tau_a}, tau_b={self.tau_b}"
