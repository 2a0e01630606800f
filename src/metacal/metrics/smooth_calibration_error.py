"""Smooth calibration error as a metric."""

from typing import Any

from torch import Tensor

from metacal.functional.smooth_calibration_error import smooth_error
from metacal.metrics.base import ScoreMetric


class SmoothCalibrationError(ScoreMetric):
    """`metacal.functional.smooth_calibration_error` over all batches; see there.

    The state keeps every sample's confidence and correctness.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> metric = SmoothCalibrationError(num_labels=1)
        >>> round(metric(torch.full((10,), 0.5), (torch.arange(10) < 7).long()).item(), 3)
        0.2
    """

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.add_sample_state()

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_samples(self.read(scores, targets))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return smooth_error(*self.samples())
