"""Predictions and their scores: what a model said, and how far it can be believed."""

from metacal.evaluation.binary import Threshold
from metacal.evaluation.comparison import Comparison, Difference, evaluate
from metacal.evaluation.evaluation import Evaluation, evaluate_file, evaluate_predictions
from metacal.evaluation.group_labels import GroupLabels
from metacal.evaluation.groups import GroupFigures, Groups
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.predictions import Predictions, example_predictions, read_predictions, sample_predictions
from metacal.evaluation.rejection import Detection, RiskCoverage, detection, ood_figures, risk_coverage
from metacal.evaluation.scores import Scores, confidence_verdict, score_predictions
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain

__all__ = [
    "Comparison",
    "Detection",
    "Difference",
    "Evaluation",
    "GroupFigures",
    "GroupLabels",
    "Groups",
    "PredictionFile",
    "Predictions",
    "RiskCoverage",
    "Scores",
    "StreamedScores",
    "TemperatureGain",
    "Threshold",
    "confidence_verdict",
    "detection",
    "evaluate",
    "evaluate_file",
    "evaluate_predictions",
    "example_predictions",
    "ood_figures",
    "read_predictions",
    "risk_coverage",
    "sample_predictions",
    "score_predictions",
    "temperature_gain",
]
