"""Debiased calibration error as a metric."""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.debiased_calibration_error import debiased_error
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.functional.expected_calibration_error import confidence_statistics
from metacal.metrics.base import ScoreMetric


class DebiasedCalibrationError(ScoreMetric):
    """`metacal.functional.debiased_calibration_error` over all batches; see there.

    With equal-width bins the state is 3 M integers; equal-mass bins need every sample's confidence and correctness.

    Args:
        num_classes: see `ScoreMetric`, as for ``kwargs``.
        num_bins: M.
        norm: ``"l2"`` or ``"l1"``.
        binning: ``"equal_mass"`` or ``"equal_width"``.
        kwargs: ``num_labels``, ``inputs``, ``ignore_index``, ``validate`` and torchmetrics' own.

    Examples:
        >>> import torch
        >>> metric = DebiasedCalibrationError(num_labels=1, binning="equal_width")
        >>> metric(torch.full((1000,), 0.3), (torch.arange(1000) % 10 < 3).long()).item()
        0.0
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        num_bins: int = 15,
        norm: str = "l2",
        binning: str = "equal_mass",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_num_bins(num_bins)
        check_choice("norm", norm, ("l1", "l2"))
        check_choice("binning", binning, ("equal_mass", "equal_width"))
        self.num_bins, self.norm, self.binning = num_bins, norm, binning
        if binning == "equal_width":
            self.add_bin_state(num_bins, of="confidence")
        else:
            self.add_sample_state()

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        batch = self.read(scores, targets)
        if self.binning == "equal_width":
            self.add_bins(confidence_statistics(batch, self.num_bins))
        else:
            self.add_samples(batch)

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        if self.binning == "equal_width":
            return debiased_error(self.bins(), self.norm)
        return debiased_error(equal_mass_statistics(*self.samples(), self.num_bins), self.norm)
