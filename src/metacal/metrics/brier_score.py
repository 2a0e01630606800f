"""Brier score as a streaming metric."""

from typing import Any

from torch import Tensor

from metacal.functional.brier_score import brier_sums
from metacal.metrics.base import ScoreMetric


class BrierScore(ScoreMetric):
    """Streaming `metacal.functional.brier_score`; see there. The state is a float64 sum and a count.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> round(BrierScore(num_classes=2)(torch.tensor([[0.8, 0.2]]), torch.tensor([0])).item(), 4)
        0.08
    """

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.add_mean_state(of="Brier score")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_to_mean(*brier_sums(self.read(scores, targets)))

    def compute(self) -> Tensor:
        """The mean over all samples so far, float64."""
        return self.mean()
