"""Bins as given and over the grid of temperatures: the same numbers as the functions give one at a time."""

import math

import pytest
import torch
from tests.reporting.samples import some_predictions

from metacal.evaluation import Predictions
from metacal.functional import bin_statistics, expected_calibration_error, negative_log_likelihood, noise_floor
from metacal.reporting.reliability import prepare_reliability


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
