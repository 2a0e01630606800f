"""Class by class, against plain loops over the samples."""

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.evaluation import Predictions
from metacal.functional import expected_calibration_error
from metacal.reporting import classes as module
from metacal.reporting.classes import prepare_classes


def test_rows_are_those_of_a_loop():
    said = some_predictions(samples=800)
    prepared = prepare_classes(said)
    predicted = said.probs.argmax(dim=1)
    for number, row in enumerate(prepared.rows):
        own = predicted == number
        right = own & (said.targets == number)
        assert (row.name, row.predicted) == (said.class_names[number], int(own.sum()))
        assert row.support == int((said.targets == number).sum())
        assert row.accuracy == pytest.approx(int(right.sum()) / row.predicted)
        assert row.recall == pytest.approx(int(right.sum()) / row.support)
        assert row.confidence == pytest.approx(said.probs[own].amax(dim=1).double().mean().item(), abs=1e-7)
        expected = expected_calibration_error(logits=said.logits[own], targets=said.targets[own], num_bins=10)
        assert row.ece == pytest.approx(expected.item(), abs=1e-9) and row.bins.ece == row.ece
    errors = [prepared.rows[number].ece for number in prepared.worst_first]
    assert errors == sorted(errors, reverse=True) and len(errors) == 10


def test_a_class_that_is_never_said_and_one_that_never_comes():
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    first, second, third = prepare_classes(Predictions.from_probs(probs, torch.tensor([2, 2]))).rows
    assert (third.predicted, third.accuracy, third.confidence, third.ece, third.bins) == (0, None, None, None, None)
    assert (first.support, first.recall, second.recall, third.recall) == (0, None, None, 0.0)


def test_of_many_classes_only_the_worst_get_a_diagram(monkeypatch):
    monkeypatch.setattr(module, "MOST_SHOWN", 3)
    prepared = prepare_classes(some_predictions(samples=500))
    assert len(prepared.worst_first) == 3
    assert {number for number, row in enumerate(prepared.rows) if row.bins} == set(prepared.worst_first)
