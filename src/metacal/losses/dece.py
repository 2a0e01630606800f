"""DECE as a loss module."""

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins, check_positive
from metacal.functional.dece import GRADIENTS, dece
from metacal.losses.base import Loss


class DECE(Loss):
    """Differentiable expected calibration error of the batch; see `metacal.functional.dece`.

    Args:
        num_bins: M.
        tau_a: sharpness of the soft rank.
        tau_b: temperature of the soft bins.
        gradient: ``"full"``, as published, or ``"confidence"``, the same value with far less noise in its gradient.
    """

    def __init__(
        self, num_bins: int = 15, tau_a: float = 100.0, tau_b: float = 0.01, *, gradient: str = "full"
    ) -> None:
        super().__init__()
        check_num_bins(num_bins)
        check_positive("tau_a", tau_a)
        check_positive("tau_b", tau_b)
        check_choice("gradient", gradient, GRADIENTS)
        self.num_bins, self.tau_a, self.tau_b, self.gradient = num_bins, tau_a, tau_b, gradient

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return dece(
            logits=logits,
            targets=targets,
            num_bins=self.num_bins,
            tau_a=self.tau_a,
            tau_b=self.tau_b,
            gradient=self.gradient,
        )

    def extra_repr(self) -> str:
        """Arguments."""
        return f"num_bins={self.num_bins}, tau_a={self.tau_a}, tau_b={self.tau_b}, gradient={self.gradient!r}"
