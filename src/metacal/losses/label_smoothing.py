"""Label smoothing as a loss module."""

from torch import Tensor

from metacal.functional.arguments import check_choice, check_share
from metacal.functional.label_smoothing import label_smoothing_loss
from metacal.functional.reduction import REDUCTIONS
from metacal.losses.base import Loss


class LabelSmoothing(Loss):
    """Cross-entropy with uniformly smoothed labels; see `metacal.functional.label_smoothing_loss`.

    Args:
        strength: in [0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, strength: float = 0.05, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_share("strength", strength)
        self.strength, self.reduction = strength, reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return label_smoothing_loss(logits=logits, targets=targets, strength=self.strength, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Arguments."""
        return f"strength={self.strength}, reduction={self.reduction!r}"
