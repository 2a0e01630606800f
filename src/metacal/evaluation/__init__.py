"""Predictions and their scores: what a model said, and how far it can be believed."""

from metacal.evaluation.batches import PredictionFile
from metacal.evaluation.evaluation import Evaluation, evaluate_file, evaluate_predictions
from metacal.evaluation.example import example_predictions
from metacal.evaluation.ood import Detection, detection, ood_figures
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.reading import read_predictions, sample_predictions
from metacal.evaluation.scores import Scores, score_predictions
from metacal.evaluation.selective import RiskCoverage, risk_coverage
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain
from metacal.evaluation.verdict import confidence_verdict

__all__ = [
    "Detection",
    "Evaluation",
    "PredictionFile",
    "Predictions",
    "RiskCoverage",
    "Scores",
    "StreamedScores",
    "TemperatureGain",
    "confidence_verdict",
    "detection",
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
