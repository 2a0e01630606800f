"""Cross-entropy loss, hard or soft targets, with optional class weights."""

from typing import Any

import torch
from torch import Tensor

from metacal.functional.arguments import check_choice
from metacal.functional.boundary import public
from metacal.functional.cross_entropy import cross_entropy, soft_cross_entropy
from metacal.functional.reduction import REDUCTIONS
from metacal.losses.base import Loss


class CrossEntropy(Loss):
    """Cross-entropy; see `metacal.functional.cross_entropy`. Float targets ``(n, K)`` are soft labels.

    Args:
        class_weights: ``(K,)``, moved along with the module; None weighs all alike. The mean is the
            weighted mean for hard targets, the mean over samples for soft ones, as in `torch.nn.CrossEntropyLoss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
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
