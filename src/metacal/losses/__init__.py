"""Losses as modules: thin shells over `metacal.functional` that add and scale, ``CrossEntropy() + 0.5 * DECE()``."""

from metacal.losses.after_temperature import AfterTemperature
from metacal.losses.base import FunctionLoss, Loss, WeightedSum
from metacal.losses.brier_score import BrierLoss
from metacal.losses.cross_entropy import CrossEntropy
from metacal.losses.dece import DECE
from metacal.losses.focal import FLSDLoss, FocalLoss
from metacal.losses.label_smoothing import LabelSmoothing
from metacal.losses.mmce import MMCE, MMCEWeighted
from metacal.losses.soft_avuc import SAvUC
from metacal.losses.soft_binned_ece import SBECE

__all__ = [
    "DECE",
    "MMCE",
    "SBECE",
    "AfterTemperature",
    "BrierLoss",
    "CrossEntropy",
    "FLSDLoss",
    "FocalLoss",
    "FunctionLoss",
    "LabelSmoothing",
    "Loss",
    "MMCEWeighted",
    "SAvUC",
    "WeightedSum",
]
