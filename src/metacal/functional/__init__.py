"""Pure tensor functions: calibration errors, proper scores, differentiable calibration losses. Torch only, no state."""

from metacal.functional.batch_losses import dece, mmce, mmce_weighted, soft_avuc, soft_binned_ece
from metacal.functional.binning import (
    BinStatistics,
    calibration_error,
    equal_mass_statistics,
    equal_width_statistics,
    noise_floor,
    sample_size_warning,
)
from metacal.functional.calibration_errors import (
    adaptive_calibration_error,
    bin_statistics,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    smooth_calibration_error,
    sweep_calibration_error,
)
from metacal.functional.intervals import Interval, bootstrap_interval, calibration_error_interval
from metacal.functional.proper_scores import (
    Decomposition,
    brier_decomposition,
    brier_score,
    likelihood_decomposition,
    negative_log_likelihood,
)
from metacal.functional.sample_losses import (
    brier_loss,
    cross_entropy,
    flsd_loss,
    focal_loss,
    label_smoothing_loss,
    smooth_labels,
    soft_cross_entropy,
)
from metacal.functional.temperature import (
    TemperatureFit,
    fit_temperature,
    fit_temperature_by_grid,
    fit_temperature_by_lbfgs,
    temperature_grid_errors,
    temperature_with_prior,
)

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
