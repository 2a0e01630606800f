"""Files that others wrote are read without an option, and their figures are those of a recomputation in NumPy."""

import csv
from pathlib import Path

import numpy as np
import pytest

from metacal.errors import InvalidFileError
from metacal.evaluation import PredictionFile, evaluate_file

FOREIGN = Path(__file__).parent / "foreign"
CARDS = ("prepaid_card", "highstreet_card", "upmarket_card")


def column(name, key):
    with (FOREIGN / name).open(newline="") as file:
        return [row[key] for row in csv.DictReader(file)]


def binary(name, score, target):
    positive = np.array(column(name, score), dtype=float)
    return np.stack((1 - positive, positive), 1), np.array(column(name, target), dtype=float).astype(int)


def cards(name):
    probs = [np.array(column(name, f"y_pred_proba_{card}"), dtype=float) for card in CARDS]
    return np.stack(probs, 1), np.array([CARDS.index(card) for card in column(name, "y_true")])


FILES = {
    "nannyml-mc_reference.csv": cards,
    "nannyml-synthetic_sample_reference.csv": lambda name: binary(name, "y_pred_proba", "work_home_actual"),
    "nannyml-california_housing_reference.csv": lambda name: binary(name, "y_pred_proba", "clf_target"),
    "aequitas-compas_for_aequitas.csv": lambda name: binary(name, "score", "label_value"),
}


@pytest.mark.parametrize("name", FILES)
def test_figures_are_those_of_numpy(name):
    probs, targets = FILES[name](name)
    figures = evaluate_file(PredictionFile(FOREIGN / name), num_resamples=10).figures
    confidences, right = probs.max(1), probs.argmax(1) == targets
    bins = np.clip(np.ceil(confidences * 15).astype(int) - 1, 0, 14)
    gaps = [abs((right - confidences)[bins == place].sum()) for place in range(15)]
    assert figures["accuracy"] == pytest.approx(right.mean(), abs=1e-9)
    assert figures["ece"] == pytest.approx(sum(gaps) / len(targets), abs=1e-9)
    assert figures["brier"] == pytest.approx(((probs - np.eye(probs.shape[1])[targets]) ** 2).sum(1).mean(), abs=1e-9)


def test_a_log_of_two_epochs():
    """Of two questions asked twice, "No" and "No." are one answer, "No" and "Yes." are two."""
    evaluation = evaluate_file(PredictionFile(FOREIGN / "inspect-log_streaming.eval", top_label=True), num_resamples=10)
    assert sorted(evaluation.binned.confidences.tolist()) == [0.5, 1.0]
    assert evaluation.figures["accuracy"] == 0.5


def test_a_log_without_any_confidence():
    with pytest.raises(InvalidFileError, match="has no log-probabilities, no stated confidence and one epoch; run"):
        PredictionFile(FOREIGN / "inspect-log_formats.eval", top_label=True)
