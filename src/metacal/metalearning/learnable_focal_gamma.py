"""A learned focal-loss exponent, for all classes or each."""

import torch
from torch import nn

from metacal.functional.arguments import check_integer
from metacal.functional.focal import focal_weight, target_log_probs
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss

HIGHEST = 10.0


class LearnableFocalGamma(Hyperparameter, name="focal_gamma"):
    """Weighs each sample by ``(1 - p) ** gamma``, p the true class's probability: focal loss with a learned gamma.

    Args:
        num_classes: K.
        per_class: a gamma for each true class instead of one.

    Attributes:
        gamma: ``()`` or ``(K,)``, in [0, 10], starts at 0 (cross-entropy).
    """

    num_classes: int

    def __init__(self, num_classes: int, per_class: bool = False) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        self.num_classes = num_classes
        self.gamma = nn.Parameter(torch.zeros(num_classes if per_class else ()))

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill the sample weight."""
        labels = inner.labels
        gamma = self.gamma if self.gamma.ndim == 0 else self.gamma[labels]

        return inner.with_weight(lambda logits: focal_weight(target_log_probs(logits, labels), gamma))

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Gamma in [0, 10]."""
        return {"gamma": (0.0, HIGHEST)}
