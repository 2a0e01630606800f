"""Predictions are checked when they are made, and give logits and probabilities either way; the example is real."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.evaluation.predictions import EXAMPLE, Predictions, example_predictions

PROBS, TARGETS = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1])


def test_logits_and_probs_are_two_views_of_one_thing():
    said = Predictions.from_probs(PROBS, TARGETS)
    again = Predictions.from_logits(said.logits, TARGETS)
    torch.testing.assert_close(again.probs, PROBS)


def test_one_probability_is_a_binary_model():
    said = Predictions.from_probs(torch.tensor([0.25]), torch.tensor([1]))
    assert said.probs.tolist() == [[0.75, 0.25]]


def test_a_zero_probability_has_a_finite_logit():
    assert torch.isfinite(Predictions.from_probs(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).logits).all()


@pytest.mark.parametrize(
    ("probs", "targets", "names", "message"),
    [
        (PROBS * 2, TARGETS, None, "`probs` must lie in"),
        (PROBS, TARGETS + 1, None, "`targets` must lie in 0..1, got 2"),
        (PROBS, torch.eye(2).long(), None, "pass `targets.argmax.1.` if the rows are one-hot"),
        (PROBS, TARGETS, ["cat"], "`class_names` must hold 2 names, got 1"),
    ],
)
def test_bad_predictions_are_refused(probs, targets, names, message):
    with pytest.raises(InvalidValueError, match=message):
        Predictions.from_probs(probs, targets, names)


def test_shapes_and_dtypes_of_the_example():
    probs, targets = example_predictions()
    assert probs.shape == (10_000, 10)
    assert probs.dtype == torch.float32
    assert targets.shape == (10_000,)
    assert targets.dtype == torch.int64
    assert targets.bincount().tolist() == [1000] * 10
    torch.testing.assert_close(probs.sum(1), torch.ones(10_000), rtol=0.0, atol=1e-4)


@pytest.mark.data
def test_the_example_is_equal_to_the_originals(data_folder):
    probs, targets = example_predictions()
    with np.load(data_folder / "predictions" / EXAMPLE, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(probs.numpy(), arrays["predictions"])
        np.testing.assert_array_equal(targets.numpy(), arrays["ground_truth"].reshape(-1))
