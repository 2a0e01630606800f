"""Proper scores as streaming metrics: the state is a float64 sum and a count."""

from typing import Any

from torch import Tensor

from metacal.functional.proper_scores import brier_sums, likelihood_sums
from metacal.metrics.base import MeanMetric


class NegativeLogLikelihood(MeanMetric):
    """Streaming `metacal.functional.negative_log_likelihood`; see there, and `ScoreMetric` for the arguments."""

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.add_mean_state(of="negative log-likelihood")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_to_mean(*likelihood_sums(self.read(scores, targets)))


class BrierScore(MeanMetric):
    """Streaming `metacal.functional.brier_score`; see there, and `ScoreMetric` for the arguments."""

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.add_mean_state(of="Brier score")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_to_mean(*brier_sums(self.read(scores, targets)))
