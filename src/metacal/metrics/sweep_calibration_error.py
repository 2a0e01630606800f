"""Monotonic-sweep calibration error as a metric."""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import check_choice
from metacal.functional.binning import calibration_error
from metacal.functional.sweep_calibration_error import sweep_statistics
from metacal.metrics.base import ScoreMetric


class SweepCalibrationError(ScoreMetric):
    """`metacal.functional.sweep_calibration_error` over all batches; see there.

    The number of bins is known only at the end, so the state keeps every sample's confidence and correctness.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> metric = SweepCalibrationError(num_labels=1)
        >>> round(metric(torch.tensor([0.1, 0.3, 0.6, 0.8]), torch.tensor([0, 0, 1, 1])).item(), 4)
        0.25
    """

    def __init__(self, num_classes: int | None = None, *, norm: str = "l1", **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        check_choice("norm", norm, ("l1", "l2", "max"))
        self.norm = norm
        self.add_sample_state()

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_samples(self.read(scores, targets))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(sweep_statistics(*self.samples()), self.norm)
