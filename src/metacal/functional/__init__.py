"""Pure tensor functions: calibration errors, proper scores, differentiable calibration losses. Torch only, no state."""

from metacal.functional.adaptive_calibration_error import adaptive_calibration_error
from metacal.functional.binning import BinStatistics, calibration_error, equal_width_statistics
from metacal.functional.bootstrap import bootstrap_interval
from metacal.functional.brier_score import brier_decomposition, brier_loss, brier_score
from metacal.functional.classwise_calibration_error import classwise_calibration_error
from metacal.functional.cross_entropy import cross_entropy, soft_cross_entropy
from metacal.functional.debiased_calibration_error import debiased_calibration_error
from metacal.functional.dece import dece
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.functional.error_interval import Interval, calibration_error_interval
from metacal.functional.expected_calibration_error import bin_statistics, expected_calibration_error
from metacal.functional.focal import flsd_loss, focal_loss
from metacal.functional.label_smoothing import label_smoothing_loss, smooth_labels
from metacal.functional.mmce import mmce, mmce_weighted
from metacal.functional.negative_log_likelihood import (
    Decomposition,
    likelihood_decomposition,
    negative_log_likelihood,
)
from metacal.functional.sample_size import noise_floor, sample_size_warning
from metacal.functional.smooth_calibration_error import smooth_calibration_error
from metacal.functional.soft_avuc import soft_avuc
from metacal.functional.soft_binned_ece import soft_binned_ece
from metacal.functional.sweep_calibration_error import sweep_calibration_error
from metacal.functional.temperature import TemperatureFit, fit_temperature
from metacal.functional.temperature_grid import fit_temperature_by_grid, temperature_grid_errors
from metacal.functional.temperature_lbfgs import fit_temperature_by_lbfgs
from metacal.functional.temperature_prior import temperature_with_prior

__all__ = [
    "BinStatistics",
    "Decomposition",
    "Interval",
    "TemperatureFit",
    "adaptive_calibration_error",
    "bin_statistics",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_loss",
    "brier_score",
    "calibration_error",
    "calibration_error_interval",
    "classwise_calibration_error",
    "cross_entropy",
    "debiased_calibration_error",
    "dece",
    "equal_mass_statistics",
    "equal_width_statistics",
    "expected_calibration_error",
    "fit_temperature",
    "fit_temperature_by_grid",
    "fit_temperature_by_lbfgs",
    "flsd_loss",
    "focal_loss",
    "label_smoothing_loss",
    "likelihood_decomposition",
    "mmce",
    "mmce_weighted",
    "negative_log_likelihood",
    "noise_floor",
    "sample_size_warning",
    "smooth_calibration_error",
    "smooth_labels",
    "soft_avuc",
    "soft_binned_ece",
    "soft_cross_entropy",
    "sweep_calibration_error",
    "temperature_grid_errors",
    "temperature_with_prior",
]
