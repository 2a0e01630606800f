"""Meta-learned hyper-parameters: training learns the values that give the best held-out calibration.

One `MetaCalibrator.step`, in reading order: ``meta_calibrator`` runs the model and asks whether a meta step is due;
``meta_stream`` gives a held-out batch; ``through_model`` or ``through_head`` finds the gradient
of the held-out objective through a simulated training step, scaled by ``optimizer_step``; ``outer_step`` moves omega;
``meta_task`` gives the training loss, whose slots the hyper-parameters fill (``hyperparameter``, ``logit_penalty``,
``label_smoothing``).
"""

from metacal.metalearning import loss_hyperparameters
from metacal.metalearning.finish import Finish, TemperatureScaled
from metacal.metalearning.hyperparameter import HYPERPARAMETERS, Hyperparameter, InnerLoss
from metacal.metalearning.label_smoothing import (
    HierarchicalLabelSmoothing,
    LabelSmoothingHyperparameter,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    VectorLabelSmoothing,
)
from metacal.metalearning.logit_penalty import LogitPenalty
from metacal.metalearning.loss_hyperparameters import *  # noqa: F403
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
    "LogitPenalty",
    "MetaCalibrator",
    "NonUniformLabelSmoothing",
    "OuterStep",
    "ScalarLabelSmoothing",
    "TemperatureScaled",
    "VectorLabelSmoothing",
    *loss_hyperparameters.__all__,
]
