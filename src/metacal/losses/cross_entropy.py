"""Cross-entropy loss, hard or soft targets, with optional class weights."""

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_tensor
from metacal.functional.cross_entropy import cross_entropy, soft_cross_entropy
from metacal.functional.reduction import REDUCTIONS
from metacal.losses.base import Loss


class CrossEntropy(Loss):
    """Cross-entropy; see `metacal.functional.cross_entropy`. Float targets ``(n, K)`` are soft labels.

    Args:
        class_weights: ``(K,)``, moved along with the module; None weighs all alike. Hard targets only.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    class_weights: Tensor | None

    def __init__(self, class_weights: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        self.register_buffer("class_weights", None if class_weights is None else torch.as_tensor(class_weights))
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        check_tensor("targets", targets)
        if targets.is_floating_point():
            if self.class_weights is not None:
                raise InvalidValueError("`class_weights` must be None for soft labels: weigh the labels themselves.")
            return soft_cross_entropy(logits=logits, targets=targets, reduction=self.reduction)
        return cross_entropy(logits=logits, targets=targets, class_weights=self.class_weights, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Arguments that differ from one instance to the next."""
        return f"reduction={self.reduction!r}"
