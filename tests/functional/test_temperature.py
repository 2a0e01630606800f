"""Temperature: recovered over four decades and every dtype, at the optimum, and honest where there is none."""

import math

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import fit_temperature, negative_log_likelihood
from metacal.functional import inputs as inputs_module

RIGHT = torch.tensor([0, 1, 0, 1])
SIDES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


def drawn(temperature, dtype, n=20_000, num_classes=6):
    """Logits ``temperature`` times those that the labels were drawn from."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, num_classes, generator=generator, dtype=torch.float64) * 2.0
    targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return (logits * temperature).to(dtype), targets


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0, 10.0])
def test_recovers_the_temperature(temperature, dtype):
    logits, targets = drawn(temperature, dtype)
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound and fit.iterations < 30
    assert fit.temperature == pytest.approx(temperature, rel=0.03)
    exact = fit_temperature(logits=logits.double(), targets=targets)
    assert fit.temperature == pytest.approx(exact.temperature, rel=1e-5)
    # The slope of the likelihood is 0 there: a step to either side is worse.
    at, below, above = (
        negative_log_likelihood(logits=logits.double() / (exact.temperature * factor), targets=targets)
        for factor in (1.0, 0.999, 1.001)
    )
    assert at < below and at < above


@pytest.mark.parametrize("temperature", [0.01, 100.0])
def test_recovers_temperatures_far_from_the_start(temperature):
    logits, targets = drawn(temperature, torch.float32, n=5000)
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound
    assert fit.temperature == pytest.approx(temperature, rel=0.05)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("scale", [0.01, 2.0, 10.0, 100.0, 10_000.0])
def test_separable_data_end_at_the_lower_bound(scale, dtype):
    fit = fit_temperature(logits=(SIDES * scale).to(dtype), targets=RIGHT)
    assert fit.temperature == pytest.approx(1e-3, rel=1e-4)
    assert fit.at_bound and fit.converged


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("scale", [0.01, 2.0, 10.0, 100.0, 10_000.0])
def test_logits_that_are_always_wrong_end_at_the_upper_bound(scale, dtype):
    fit = fit_temperature(logits=(SIDES * scale).to(dtype), targets=1 - RIGHT)
    assert fit.temperature == pytest.approx(1e3, rel=1e-4)
    assert fit.at_bound and fit.converged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_class_only_is_defined(dtype):
    logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    logits[:, 0] += 1.0
    fit = fit_temperature(logits=logits, targets=torch.zeros(500, dtype=torch.int64))
    assert fit.converged and not fit.at_bound
    scan = np.geomspace(0.1, 10, 400)
    targets = torch.zeros(500, dtype=torch.int64)
    best = min(scan, key=lambda t: negative_log_likelihood(logits=logits.double() / t, targets=targets).item())
    assert fit.temperature == pytest.approx(best, rel=0.02)


def test_logits_without_a_say_keep_temperature_1():
    fit = fit_temperature(logits=torch.full((5, 3), 7.0), targets=torch.tensor([0, 1, 2, 0, 1]))
    assert fit.temperature == 1.0 and fit.converged and not fit.at_bound


def test_a_constant_added_to_every_row_changes_nothing():
    logits, targets = samples.multiclass(500, 4, dtype=torch.float64)
    logits = (logits * 8).round() / 8
    plain = fit_temperature(logits=logits, targets=targets).temperature
    shifted = fit_temperature(logits=logits + 1000.0, targets=targets).temperature
    assert shifted == pytest.approx(plain, rel=1e-9)


def test_chunks_and_maps_change_nothing(monkeypatch):
    keywords = samples.draw("segmentation", n=50)
    whole = fit_temperature(**keywords).temperature
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", 7)
    assert fit_temperature(**keywords).temperature == pytest.approx(whole, rel=1e-6)


def test_bad_input():
    with pytest.raises(
        InvalidValueError, match=r"`logits` must have shape \(N, K, ...\) for targets \(N, ...\), got \(3,\)"
    ):
        fit_temperature(logits=torch.zeros(3), targets=torch.tensor([0, 1, 0]))
    with pytest.raises(InvalidValueError, match="`logits` must be finite, got nan in row 1, column 0"):
        fit_temperature(logits=torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), targets=torch.tensor([0, 1]))
    with pytest.raises(InvalidTypeError, match=r"`targets` must be integer class labels, got torch\.float32"):
        fit_temperature(logits=torch.zeros(2, 2), targets=torch.zeros(2))


@pytest.mark.parametrize("gap", [300.0, 500.0, 700.0, 740.0])
def test_a_sure_mistake_by_hundreds_of_nats(gap):
    """The curvature all but vanishes at the start, and Newton's step is beyond the largest float's square root."""
    logits = torch.tensor([[gap, 0.0]] * 4, dtype=torch.float64)
    fit = fit_temperature(logits=logits, targets=torch.tensor([0, 0, 0, 1]))
    assert fit.converged and fit.temperature == pytest.approx(gap / math.log(3.0), rel=1e-6)


def test_hard_answers_of_which_some_are_wrong():
    """Logits of probabilities 0 and 1 in float64: Newton's first step is too large for a float once it is cubed."""
    logits = torch.eye(3, dtype=torch.float64)[torch.arange(300) % 3].clamp(min=torch.finfo(torch.float64).tiny).log()
    targets = (torch.arange(300) + (torch.arange(300) % 10 == 0)) % 3
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.converged and not fit.at_bound
    said = torch.softmax(logits / fit.temperature, 1).amax(1)
    assert said[0].item() == pytest.approx(0.9, abs=1e-6)  # 9 of 10 are right
