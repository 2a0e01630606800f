"""Adaptive calibration error as a metric."""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import calibration_error
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.metrics.base import ScoreMetric


class AdaptiveCalibrationError(ScoreMetric):
    """`metacal.functional.adaptive_calibration_error` over all batches; see there.

    Equal-mass edges are known only at the end, so the state keeps every sample's confidence and correctness.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> metric = AdaptiveCalibrationError(num_labels=1, num_bins=2)
        >>> round(metric(torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([0, 0, 1, 0])).item(), 4)
        0.25
    """

    def __init__(self, num_classes: int | None = None, *, num_bins: int = 15, norm: str = "l1", **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        check_num_bins(num_bins)
        check_choice("norm", norm, ("l1", "l2", "max"))
        self.num_bins, self.norm = num_bins, norm
        self.add_sample_state()

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_samples(self.read(scores, targets))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(equal_mass_statistics(*self.samples(), self.num_bins), self.norm)
