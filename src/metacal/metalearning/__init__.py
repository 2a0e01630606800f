"""Meta-learned hyper-parameters: training learns, as it runs, what makes held-out calibration best."""

from metacal.metalearning.estimators import MetaProblem
from metacal.metalearning.finish import Finish, TemperatureScaled
from metacal.metalearning.hyperparameter import HYPERPARAMETERS, Hyperparameter, InnerLoss
from metacal.metalearning.label_smoothing import (
    HierarchicalLabelSmoothing,
    LabelSmoothingHyperparameter,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    VectorLabelSmoothing,
)
from metacal.metalearning.loss_hyperparameters import LearnableFocalGamma, LearnableTemperature, UnitwiseL2
from metacal.metalearning.meta_calibrator import MetaCalibrator
from metacal.metalearning.meta_task import Hypergradient
from metacal.metalearning.outer_step import PAPER, OuterStep

__all__ = [
    "HYPERPARAMETERS",
    "PAPER",
    "Finish",
    "HierarchicalLabelSmoothing",
    "Hypergradient",
    "Hyperparameter",
    "InnerLoss",
    "LabelSmoothingHyperparameter",
    "LearnableFocalGamma",
    "LearnableTemperature",
    "MetaCalibrator",
    "MetaProblem",
    "NonUniformLabelSmoothing",
    "OuterStep",
    "ScalarLabelSmoothing",
    "TemperatureScaled",
    "UnitwiseL2",
    "VectorLabelSmoothing",
]
