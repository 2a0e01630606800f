"""Predictions and their scores: what a model said, and how far it can be believed."""

from metacal.evaluation.example import example_predictions
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.reading import read_predictions
from metacal.evaluation.scores import Scores, score_predictions

__all__ = ["Predictions", "Scores", "example_predictions", "read_predictions", "score_predictions"]
