"""Losses of single samples: shells over `metacal.functional`. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``."""

from typing import Any

import torch
from torch import Tensor

from metacal.functional.arguments import check_choice
from metacal.functional.boundary import public
from metacal.functional.sample_losses import (
    REDUCTIONS,
    brier_loss,
    cross_entropy,
    flsd_loss,
    focal_loss,
    label_smoothing_loss,
    soft_cross_entropy,
)
from metacal.losses.base import Loss, ShellLoss

__all__ = ["BrierLoss", "CrossEntropyLoss", "FLSDLoss", "FocalLoss", "LabelSmoothingLoss"]


class CrossEntropyLoss(Loss, name="cross_entropy"):
    """Cross-entropy; see `metacal.functional.cross_entropy`. Float targets ``(n, K)`` are soft labels.

    Class weights ``(K,)`` are moved along with the module. With them the mean is the weighted mean for hard targets,
    the mean over samples for soft ones, as in `torch.nn.CrossEntropyLoss`.
    """

    class_weights: Tensor | None

    def __init__(self, class_weights: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        self.register_buffer("class_weights", None if class_weights is None else torch.as_tensor(class_weights))
        self.reduction = reduction

    @public
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        options: dict[str, Any] = {"class_weights": self.class_weights, "reduction": self.reduction}
        if targets.is_floating_point():
            return soft_cross_entropy(logits=logits, targets=targets, **options)
        return cross_entropy(logits=logits, targets=targets, **options)

    def extra_repr(self) -> str:
        """Arguments that differ from one instance to the next."""
        return f"reduction={self.reduction!r}"


class LabelSmoothingLoss(ShellLoss, name="label_smoothing"):
    """Cross-entropy with uniformly smoothed labels; see `metacal.functional.label_smoothing_loss`."""

    function = staticmethod(label_smoothing_loss)

    def __init__(self, strength: float = 0.05, reduction: str = "mean") -> None:
        super().__init__(strength=strength, reduction=reduction)


class BrierLoss(ShellLoss, name="brier"):
    """Squared distance of the probabilities from the label; see `metacal.functional.brier_loss`."""

    function = staticmethod(brier_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class FocalLoss(ShellLoss, name="focal"):
    """Focal loss; see `metacal.functional.focal_loss`. The paper's FL-3 has gamma 3."""

    function = staticmethod(focal_loss)

    def __init__(self, gamma: float = 3.0, reduction: str = "mean") -> None:
        super().__init__(gamma=gamma, reduction=reduction)


class FLSDLoss(ShellLoss, name="flsd"):
    """FLSD-53; see `metacal.functional.flsd_loss`."""

    function = staticmethod(flsd_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
