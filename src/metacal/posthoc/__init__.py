"""Post-hoc calibrators: fitted on held-out logits or probabilities, they mend a finished model's confidence."""

from metacal.posthoc.base import Calibrator, FitReport
from metacal.posthoc.temperature_scaling import TemperatureScaling

__all__ = ["Calibrator", "FitReport", "TemperatureScaling"]
