"""Post-hoc calibrators: fitted on held-out logits or probabilities, they mend a finished model's confidence.

| calibrator | parameters | keeps the predicted class |
|---|---|---|
| `TemperatureScaling` | 1 | yes |
| `VectorScaling` | 2 K | no |
| `MatrixScaling` | K (K + 1) | no |
| `DirichletCalibration` | K (K + 1) | no |
| `HistogramBinning` | K M | no |
| `IsotonicCalibration` | grows with n | no |
| `BetaCalibration` | 3 K | no |
"""

from metacal.posthoc.base import Calibrator, FitReport
from metacal.posthoc.beta_calibration import BetaCalibration
from metacal.posthoc.choose import CALIBRATORS, Trial, choose_calibrator
from metacal.posthoc.dirichlet_calibration import DirichletCalibration
from metacal.posthoc.histogram_binning import HistogramBinning
from metacal.posthoc.isotonic_calibration import IsotonicCalibration
from metacal.posthoc.matrix_scaling import MatrixScaling
from metacal.posthoc.temperature_scaling import TemperatureScaling
from metacal.posthoc.vector_scaling import VectorScaling

__all__ = [
    "CALIBRATORS",
    "BetaCalibration",
    "Calibrator",
    "DirichletCalibration",
    "FitReport",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "TemperatureScaling",
    "Trial",
    "VectorScaling",
    "choose_calibrator",
]
