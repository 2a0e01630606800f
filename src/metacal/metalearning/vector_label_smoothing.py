"""A learned strength of label smoothing for each class (MC-V)."""

import torch
from torch import Tensor, nn

from metacal.functional.label_smoothing import smooth_labels
from metacal.metalearning.hyperparameter import MAX_STRENGTH, LabelSmoothingHyperparameter


class VectorLabelSmoothing(LabelSmoothingHyperparameter, name="vector_smoothing"):
    """Soft label ``y_k (1 - s_c) + s_c / K`` with a strength for each true class c.

    Args:
        num_classes: K.

    Attributes:
        strength: ``(K,)``, each in [0, 0.5], starts at 0.

    Examples:
        >>> import torch
        >>> smoothing = VectorLabelSmoothing(num_classes=2)
        >>> _ = smoothing.strength.data.copy_(torch.tensor([0.0, 0.5]))
        >>> smoothing.soft_labels(torch.tensor([0, 1])).tolist()
        [[1.0, 0.0], [0.25, 0.75]]
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.strength = nn.Parameter(torch.zeros(num_classes))

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``."""
        strength = self.strength[labels].unsqueeze(1)
        return smooth_labels(targets=labels, num_classes=self.num_classes, strength=strength)

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Strengths in [0, 0.5]."""
        return {"strength": (0.0, MAX_STRENGTH)}

    def summary(self) -> dict[str, Tensor]:
        """Mean, lowest and highest strength."""
        strength = self.strength.detach()
        return {"strength": strength.mean(), "strength_min": strength.min(), "strength_max": strength.max()}
