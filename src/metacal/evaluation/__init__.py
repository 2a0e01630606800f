"""Predictions and their scores: what a model said, and how far it can be believed."""

from metacal.evaluation.comparison import Comparison, Difference, evaluate
from metacal.evaluation.evaluation import Evaluation, confidence_verdict, evaluate_file, evaluate_predictions
from metacal.evaluation.prediction_file import PredictionFile, read_predictions, sample_predictions
from metacal.evaluation.predictions import Predictions, example_predictions
from metacal.evaluation.rejection import Detection, RiskCoverage, detection, ood_figures, risk_coverage
from metacal.evaluation.scores import Scores, score_predictions
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain

__all__ = [
    "Comparison",
    "Detection",
    "Difference",
    "Evaluation",
    "PredictionFile",
    "Predictions",
    "RiskCoverage",
    "Scores",
    "StreamedScores",
    "TemperatureGain",
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
