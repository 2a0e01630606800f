"""Calibration as torchmetrics metrics: thin wrappers of `metacal.functional`, streaming and mergeable."""

from metacal.metrics.calibration_errors import (
    AdaptiveCalibrationError,
    ClasswiseCalibrationError,
    DebiasedCalibrationError,
    ExpectedCalibrationError,
    SmoothCalibrationError,
    SweepCalibrationError,
)
from metacal.metrics.proper_scores import BrierScore, NegativeLogLikelihood

__all__ = [
    "AdaptiveCalibrationError",
    "BrierScore",
    "ClasswiseCalibrationError",
    "DebiasedCalibrationError",
    "ExpectedCalibrationError",
    "NegativeLogLikelihood",
    "SmoothCalibrationError",
    "SweepCalibrationError",
]
