"""Predictions and their scores: what a model said, and how far it can be believed."""
