"""Expected calibration error as a streaming metric."""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import calibration_error
from metacal.functional.expected_calibration_error import confidence_statistics
from metacal.metrics.base import ScoreMetric


class ExpectedCalibrationError(ScoreMetric):
    """Streaming `metacal.functional.expected_calibration_error`; see there.

    The state is 3 M integers, so memory does not grow, and the value is the same to the bit however the samples are
    ordered, batched or spread over ranks (given probabilities: a softmax may round differently in another batch).

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        num_bins: M.
        norm: ``"l1"`` (ECE), ``"l2"`` (RMSCE) or ``"max"`` (MCE).
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> from metacal.metrics import ExpectedCalibrationError
        >>> metric = ExpectedCalibrationError(num_classes=2, num_bins=5)
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]))
        >>> metric.update(torch.tensor([[0.3, 0.7], [0.4, 0.6]]), torch.tensor([1, 1]))
        >>> round(metric.compute().item(), 4)
        0.25
    """

    def __init__(self, num_classes: int | None = None, *, num_bins: int = 15, norm: str = "l1", **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        check_num_bins(num_bins)
        check_choice("norm", norm, ("l1", "l2", "max"))
        self.num_bins, self.norm = num_bins, norm
        self.add_bin_state(num_bins, of="confidence")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_bins(confidence_statistics(self.read(scores, targets), self.num_bins))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(self.bins(), self.norm)
