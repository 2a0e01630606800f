"""Calibration errors as metrics. `ScoreMetric` explains the arguments that all share, ``num_classes`` and ``kwargs``.

Where bins are known beforehand the state is a few integers. Where they depend on all samples it keeps every sample's
confidence and correctness.
"""

from typing import Any

from torch import Tensor

from metacal.functional.arguments import NORMS, check_choice, check_num_bins, check_threshold
from metacal.functional.binning import calibration_error
from metacal.functional.calibration_errors import (
    class_statistics,
    confidence_statistics,
    debiased_error,
    smooth_error,
    sweep_statistics,
)
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.metrics.base import BinMetric, SampleMetric


class ExpectedCalibrationError(BinMetric):
    """Streaming `metacal.functional.expected_calibration_error`; see there.

    The state is 3 M integers, so memory does not grow, and the value is the same to the bit however the samples are
    ordered, batched or spread over ranks (given probabilities: a softmax may round differently in another batch).

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
        check_choice("norm", norm, NORMS)
        self.num_bins, self.norm = num_bins, norm
        self.add_bin_state(num_bins, of="confidence")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_bins(confidence_statistics(self.read(scores, targets), self.num_bins))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(self.bins(), self.norm)


class ClasswiseCalibrationError(BinMetric):
    """Streaming `metacal.functional.classwise_calibration_error`; see there. The state is 3 K M integers."""

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
        check_choice("norm", norm, NORMS)
        check_threshold(threshold)
        self.num_bins, self.norm, self.threshold = num_bins, norm, threshold
        self.add_bin_state(self.num_classes or self.num_labels or 1, num_bins, of=f"classes above {threshold}")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch."""
        self.add_bins(class_statistics(self.read(scores, targets), self.num_bins, self.threshold))

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(self.bins(), self.norm).nanmean()


class DebiasedCalibrationError(BinMetric, SampleMetric):
    """`metacal.functional.debiased_calibration_error` over all batches; see there.

    With equal-width bins the state is 3 M integers.
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
        if self.binning == "equal_width":
            self.add_bins(confidence_statistics(self.read(scores, targets), self.num_bins))
        else:
            super().update(scores, targets)

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        is_binned = self.binning == "equal_width"
        statistics = self.bins() if is_binned else equal_mass_statistics(*self.samples(), self.num_bins)
        return debiased_error(statistics, self.norm)


class AdaptiveCalibrationError(SampleMetric):
    """`metacal.functional.adaptive_calibration_error` over all batches; see there."""

    def __init__(self, num_classes: int | None = None, *, num_bins: int = 15, norm: str = "l1", **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        check_num_bins(num_bins)
        check_choice("norm", norm, NORMS)
        self.num_bins, self.norm = num_bins, norm
        self.add_sample_state()

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(equal_mass_statistics(*self.samples(), self.num_bins), self.norm)


class SweepCalibrationError(SampleMetric):
    """`metacal.functional.sweep_calibration_error` over all batches; see there."""

    def __init__(self, num_classes: int | None = None, *, norm: str = "l1", **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        check_choice("norm", norm, NORMS)
        self.norm = norm
        self.add_sample_state()

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return calibration_error(sweep_statistics(*self.samples()), self.norm)


class SmoothCalibrationError(SampleMetric):
    """`metacal.functional.smooth_calibration_error` over all batches; see there."""

    def __init__(self, num_classes: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.add_sample_state()

    def compute(self) -> Tensor:
        """The error over all samples so far, float64."""
        return smooth_error(*self.samples())
