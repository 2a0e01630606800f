"""Focal loss and FLSD-53 as loss modules."""

from torch import Tensor

from metacal.functional.arguments import check_choice, check_not_negative
from metacal.functional.focal import flsd_loss, focal_loss
from metacal.functional.reduction import REDUCTIONS
from metacal.losses.base import Loss


class FocalLoss(Loss):
    """Focal loss; see `metacal.functional.focal_loss`.

    Args:
        gamma: >= 0; the paper's FL-3 is 3.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, gamma: float = 3.0, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_not_negative("gamma", gamma)
        self.gamma, self.reduction = gamma, reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return focal_loss(logits=logits, targets=targets, gamma=self.gamma, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"gamma={self.gamma}, reduction={self.reduction!r}"


class FLSDLoss(Loss):
    """FLSD-53; see `metacal.functional.flsd_loss`.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return flsd_loss(logits=logits, targets=targets, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"reduction={self.reduction!r}"
