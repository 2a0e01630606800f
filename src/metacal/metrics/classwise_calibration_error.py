"""Classwise calibration error as a streaming metric."""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins, check_threshold
from metacal.functional.binning import calibration_error
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.metrics.base import ScoreMetric


class ClasswiseCalibrationError(ScoreMetric):
    """Streaming `metacal.functional.classwise_calibration_error`; see there. The state is 3 K M integers.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        threshold: leave out probabilities at or below it.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> metric = ClasswiseCalibrationError(num_classes=2)
        >>> round(metric(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 1])).item(), 4)
        0.4
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        num_bins: int = 15,
        norm: str = "l1",
        threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_num_bins(num_bins)
        check_choice("norm", norm, ("l1", "l2", "max"))
        check_threshold(threshold)
        self.num_bins, self.norm, self.threshold = num_bins, norm, threshold
        self.add_bin_state(self.num_classes or self.num_labels or 1, num_bins, of=f"classes above {threshold}")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_bins(class_statistics(self.read(scores, targets), self.num_bins, self.threshold))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(self.bins(), self.norm).nanmean()
