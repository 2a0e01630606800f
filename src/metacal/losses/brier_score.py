"""Brier loss as a module."""

from torch import Tensor

from metacal.functional.arguments import check_choice
from metacal.functional.brier_score import brier_loss
from metacal.functional.reduction import REDUCTIONS
from metacal.losses.base import Loss


class BrierLoss(Loss):
    """Squared distance of the probabilities from the label; see `metacal.functional.brier_loss`.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return brier_loss(logits=logits, targets=targets, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"reduction={self.reduction!r}"
