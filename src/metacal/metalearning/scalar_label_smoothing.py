"""One learned strength of label smoothing for all classes (MC-S)."""

import torch
from torch import Tensor, nn

from metacal.functional.label_smoothing import smooth_labels
from metacal.metalearning.hyperparameter import MAX_STRENGTH, LabelSmoothingHyperparameter


class ScalarLabelSmoothing(LabelSmoothingHyperparameter, name="scalar_smoothing"):
    """Soft label ``y_k (1 - s) + s / K`` with one s for all classes.

    Args:
        num_classes: K.

    Attributes:
        strength: ``()``, s in [0, 0.5], starts at 0.

    Examples:
        >>> import torch
        >>> smoothing = ScalarLabelSmoothing(num_classes=2)
        >>> _ = smoothing.strength.data.fill_(0.5)
        >>> smoothing.soft_labels(torch.tensor([1])).tolist()
        [[0.25, 0.75]]
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.strength = nn.Parameter(torch.zeros(()))

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``."""
        return smooth_labels(targets=labels, num_classes=self.num_classes, strength=self.strength)

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Strength in [0, 0.5]."""
        return {"strength": (0.0, MAX_STRENGTH)}
