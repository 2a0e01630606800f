"""Predictions and their scores: accuracy, likelihood and calibration with intervals."""

from metacal.evaluation.comparison import Comparison, Difference, evaluate
from metacal.evaluation.decisions import (
    Detection,
    RiskCoverage,
    TemperatureGain,
    Threshold,
    detection,
    ood_figures,
    risk_coverage,
    temperature_gain,
)
from metacal.evaluation.evaluation import Evaluation, evaluate_file, evaluate_predictions
from metacal.evaluation.groups import GroupFigures, GroupLabels, Groups
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.predictions import Predictions, example_predictions, read_predictions, sample_predictions
from metacal.evaluation.scores import Scores, confidence_verdict, score_predictions
from metacal.evaluation.streaming import StreamedScores

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
