"""Post-hoc calibrators: fitted on held-out logits or probabilities, they correct a trained model's confidence.

| calibrator | parameters | keeps the predicted class |
|---|---|---|
| `TemperatureScaling` | 1 | yes |
| `VectorScaling` | 2 K | no |
| `MatrixScaling` | K (K + 1) | no |
| `StructuredVectorScaling` | 2 K, under priors | no |
| `StructuredMatrixScaling` | K (K + 1), under priors | no |
| `DirichletCalibration` | K (K + 1) | no |
| `HistogramBinning` | K M | no |
| `IsotonicCalibration` | grows with n | no |
| `BetaCalibration` | 3 K | no |
"""

from metacal.posthoc.base import Calibrator, FitReport
from metacal.posthoc.beta_calibration import BetaCalibration
from metacal.posthoc.choose import Trial, choose_calibrator
from metacal.posthoc.export import CalibratedModel, fold_into_layer
from metacal.posthoc.linear_scaling import DirichletCalibration, MatrixScaling, VectorScaling
from metacal.posthoc.one_against_rest import HistogramBinning, IsotonicCalibration
from metacal.posthoc.structured_scaling import StructuredMatrixScaling, StructuredVectorScaling
from metacal.posthoc.temperature_scaling import TemperatureScaling

CALIBRATORS: dict[str, type[Calibrator]] = {
    "temperature": TemperatureScaling,
    "structured_vector": StructuredVectorScaling,
    "vector": VectorScaling,
    "beta": BetaCalibration,
    "structured_matrix": StructuredMatrixScaling,
    "dirichlet": DirichletCalibration,
    "matrix": MatrixScaling,
    "histogram": HistogramBinning,
    "isotonic": IsotonicCalibration,
}
"""By the names that the command line and `choose_calibrator` know them by, the simplest first."""

__all__ = [
    "CALIBRATORS",
    "BetaCalibration",
    "CalibratedModel",
    "Calibrator",
    "DirichletCalibration",
    "FitReport",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "Trial",
    "VectorScaling",
    "choose_calibrator",
    "fold_into_layer",
]
