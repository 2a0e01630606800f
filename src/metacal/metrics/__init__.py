"""Calibration as torchmetrics metrics: thin shells over `metacal.functional`, streaming, mergeable, all-reduced."""

from metacal.metrics.adaptive_calibration_error import AdaptiveCalibrationError
from metacal.metrics.brier_score import BrierScore
from metacal.metrics.classwise_calibration_error import ClasswiseCalibrationError
from metacal.metrics.debiased_calibration_error import DebiasedCalibrationError
from metacal.metrics.expected_calibration_error import ExpectedCalibrationError
from metacal.metrics.negative_log_likelihood import NegativeLogLikelihood
from metacal.metrics.smooth_calibration_error import SmoothCalibrationError
from metacal.metrics.sweep_calibration_error import SweepCalibrationError

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
