"""Reliability as given, over the grid of temperatures and class by class, against the functions and plain loops."""

import math

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.evaluation import Predictions
from metacal.functional import bin_statistics, expected_calibration_error, negative_log_likelihood, noise_floor
from metacal.reporting import reliability as module
from metacal.reporting.reliability import prepare_classes, prepare_reliability


@pytest.fixture(scope="module")
def prepared():
    said = some_predictions()
    return said, prepare_reliability(said)


def test_as_given(prepared):
    said, reliability = prepared
    statistics = bin_statistics(logits=said.logits, targets=said.targets)
    assert reliability.given.counts == statistics.counts.tolist()
    assert reliability.given.ece == expected_calibration_error(logits=said.logits, targets=said.targets).item()
    assert reliability.given.chance == noise_floor(statistics).item()
    for place, count in enumerate(statistics.counts.tolist()):
        expected = statistics.accuracies[place].item() if count else None
        assert reliability.given.accuracies[place] == expected


@pytest.mark.parametrize("step", [0, 4, 9, 25, 99])
def test_at_a_temperature(prepared, step):
    said, reliability = prepared
    temperature = (step + 1) / 10
    assert reliability.temperatures[step] == temperature
    scaled = said.logits / temperature
    expected = expected_calibration_error(logits=scaled, targets=said.targets).item()
    assert reliability.scaled[step].ece == pytest.approx(expected, abs=1e-6)
    assert reliability.nll[step] == pytest.approx(
        negative_log_likelihood(logits=scaled, targets=said.targets).item(), abs=1e-6
    )
    assert sum(reliability.scaled[step].counts) == len(said)


def test_the_slider_starts_at_the_best_likelihood(prepared):
    _, reliability = prepared
    assert reliability.fitted == pytest.approx(2.0, abs=0.15)  # how much the sample was sharpened
    assert reliability.temperatures[reliability.fitted_step] == round(reliability.fitted, 1)
    errors = [bins.ece for bins in reliability.scaled]
    assert errors[reliability.best_step] == min(errors) and min(errors) < reliability.given.ece / 4


def test_probabilities_are_taken_as_they_are(prepared):
    said, reliability = prepared
    as_probs = Predictions.from_probs(said.probs, said.targets)
    other = prepare_reliability(as_probs)
    assert other.given.counts == reliability.given.counts
    assert other.scaled[29].ece == pytest.approx(reliability.scaled[29].ece, abs=1e-4)


@pytest.mark.parametrize(("target", "step"), [(0, 0), (1, 99)])
def test_a_temperature_at_its_bound_is_not_called_fitted(target, step):
    logits = torch.tensor([[3.0, 0.0]]).repeat(8, 1)
    reliability = prepare_reliability(Predictions.from_logits(logits, torch.full((8,), target)))
    assert reliability.fitted is None and reliability.fitted_step == step


def test_one_sample():
    reliability = prepare_reliability(Predictions.from_probs(torch.tensor([[0.25, 0.75]]), torch.tensor([1])))
    assert sum(reliability.given.counts) == 1 and reliability.given.ece == 0.25
    assert reliability.given.accuracies.count(None) == 14


def test_huge_logits_have_a_finite_likelihood_at_every_temperature():
    logits = 1e37 * torch.tensor([[4.0, -4.0], [-4.0, 4.0], [4.0, -4.0]])
    reliability = prepare_reliability(Predictions.from_logits(logits, torch.tensor([0, 1, 1])))
    assert all(math.isfinite(value) for value in reliability.nll) and reliability.nll[9] > 1e37


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
