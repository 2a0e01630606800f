"""Evaluations: classes, confusions, words, JSON, and what is not finite."""

import numpy as np
import pytest
import torch
from tests.evaluation.files import NAMES, draw

import metacal
from metacal.evaluation import (
    Predictions,
    confidence_verdict,
    evaluate_predictions,
)
from metacal.evaluation.evaluation import FIGURES, MEASURES, confused_pairs, confusion_counts
from metacal.functional import equal_width_statistics


def test_confusions():
    counts = confusion_counts(torch.tensor([0, 1, 1, 2, 0, 0]), torch.tensor([0, 0, 0, 2, 2, 1]), 3)
    assert counts.tolist() == [[1, 2, 0], [1, 0, 0], [1, 0, 1]]
    pairs = confused_pairs(counts, NAMES, most=2)
    assert [(p.target, p.predicted, p.samples) for p in pairs] == [("cat", "dog", 2), ("dog", "cat", 1)]
    assert pairs[0].share == pytest.approx(2 / 3)
    assert confused_pairs(torch.diag(torch.tensor([3, 2])), ("a", "b")) == []


@pytest.mark.parametrize(
    ("confidence", "right", "words"),
    [(0.9, 800, "Over-confident"), (0.6, 800, "Under-confident"), (0.8, 805, "Neither over- nor under-confident")],
)
def test_verdict(confidence, right, words):
    statistics = equal_width_statistics(torch.full((1000,), confidence), torch.arange(1000) < right)
    assert confidence_verdict(statistics).startswith(words)


def test_an_evaluation_holds_every_figure_and_valid_json():
    _, probs, targets = draw(n=300)
    evaluation = evaluate_predictions(Predictions.from_probs(probs, targets, NAMES, "net"), num_resamples=20)
    assert set(evaluation.figures) == set(FIGURES)
    for name in MEASURES:
        assert 0.0 <= evaluation.figures[f"{name}_low"] < evaluation.figures[f"{name}_high"], name
    assert [figures.name for figures in evaluation.classes] == list(NAMES)
    assert sum(figures.samples for figures in evaluation.classes) == 300
    found = evaluation.to_dict()
    assert set(found["coverage_at_risk"]) == {"0.01", "0.02", "0.05"}
    assert found["brier"] == pytest.approx(found["brier_calibration"] + found["brier_refinement"])
    few = evaluate_predictions(Predictions.from_probs(probs[:20], targets[:20], NAMES), num_resamples=10)
    assert few.warning.startswith("20 samples are too few for 15 bins")


def test_an_infinite_likelihood_is_null_in_json():
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    evaluation = evaluate_predictions(Predictions.from_probs(probs, torch.tensor([0, 1, 1, 1])), num_resamples=10)
    assert evaluation.figures["nll"] == float("inf")
    assert evaluation.to_dict()["nll"] is None


def test_one_sample_and_one_class_are_defined():
    one = evaluate_predictions(Predictions.from_probs(torch.tensor([[0.7, 0.3]]), torch.tensor([0])), num_resamples=10)
    assert one.figures["accuracy"] == 1.0
    assert one.gain is None
    assert one.confused == []
    assert one.classes[1].recall is None
    assert one.classes[1].precision is None


def test_scores_that_only_rounding_makes_equal_keep_their_order():
    logits, _, targets = draw(n=300, dtype=torch.float64)
    tiny = evaluate_predictions(Predictions.from_logits(1e-30 * logits, targets), num_resamples=10)
    right = (logits.argmax(1) == targets).double().mean().item()
    assert tiny.figures["accuracy"] == pytest.approx(right)
    assert f"is right {right:.1%}".replace("%", " %") in tiny.verdict
    assert tiny.figures["accuracy_low"] <= right <= tiny.figures["accuracy_high"]
    assert sum(pair.samples for pair in tiny.confused) == round(300 * (1.0 - right))


def test_an_infinite_likelihood_is_infinite_before_temperature_too():
    probs = torch.eye(2)[torch.arange(100) % 2]
    evaluation = evaluate_predictions(Predictions.from_probs(probs, (torch.arange(100) + 1) // 2 % 2), num_resamples=10)
    assert evaluation.figures["nll"] == evaluation.gain.nll_before == float("inf")
    assert evaluation.to_dict()["temperature_scaling"]["nll_before"] is None


def test_printed_it_is_three_lines():
    probs = np.tile([0.9, 0.1], (100, 1))
    found = metacal.evaluate(probs=probs, targets=[0] * 60 + [1] * 40)
    first, figures, verdict = str(found).splitlines()
    assert first == "predictions: 100 samples, 2 classes"
    assert figures.startswith("accuracy 60.0 %, ECE 30.00 % (")
    assert figures.endswith(f", NLL {found.figures['nll']:.4f}")
    assert verdict == "Over-confident: it says 90.0 % and is right 60.0 % of the time."
