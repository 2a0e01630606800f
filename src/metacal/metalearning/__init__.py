"""Meta-learned hyper-parameters: training learns, as it runs, what makes held-out calibration best."""

from metacal.metalearning.finish import Finish, TemperatureScaled
from metacal.metalearning.hierarchical_label_smoothing import HierarchicalLabelSmoothing
from metacal.metalearning.hyperparameter import HYPERPARAMETERS, Hyperparameter, LabelSmoothingHyperparameter
from metacal.metalearning.inner_loss import InnerLoss
from metacal.metalearning.learnable_focal_gamma import LearnableFocalGamma
from metacal.metalearning.learnable_temperature import LearnableTemperature
from metacal.metalearning.meta_calibrator import MetaCalibrator
from metacal.metalearning.non_uniform_label_smoothing import NonUniformLabelSmoothing
from metacal.metalearning.outer_step import PAPER, OuterStep
from metacal.metalearning.problem import Hypergradient, MetaProblem
from metacal.metalearning.scalar_label_smoothing import ScalarLabelSmoothing
from metacal.metalearning.unitwise_l2 import UnitwiseL2
from metacal.metalearning.vector_label_smoothing import VectorLabelSmoothing

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
