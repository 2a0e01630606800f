"""Temperature four ways: the exact one, under a prior, the grid of the paper, and the recipe that stops short."""

import numpy as np
import pytest
import torch
from tests import oracles
from tests.posthoc.samples import drawn

from metacal.errors import MetacalWarning
from metacal.functional import (
    expected_calibration_error,
    fit_temperature,
    fit_temperature_by_grid,
    fit_temperature_by_lbfgs,
    temperature_grid_errors,
)
from metacal.functional import inputs as inputs_module
from metacal.functional.temperature import GRID
from metacal.posthoc import TemperatureScaling


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0, 10.0])
def test_by_likelihood(temperature):
    logits, targets = drawn(sharpened=temperature)
    scaling = TemperatureScaling().fit(logits=logits, targets=targets)
    assert scaling.temperature_ == fit_temperature(logits=logits, targets=targets).temperature
    assert scaling.temperature_ == pytest.approx(temperature, rel=0.05)
    said = scaling.predict_proba(logits=logits)
    np.testing.assert_allclose(said.numpy(), oracles.softmax(logits.numpy() / scaling.temperature_), rtol=1e-9)
    assert torch.equal(said.argmax(1), logits.argmax(1))


@pytest.mark.parametrize("sharpened", [0.2, 4.0])
def test_a_prior_holds_temperatures_below_1(sharpened):
    """The optimum on a fine grid of log T."""
    logits, targets = drawn(n=60, sharpened=sharpened)
    scaling = TemperatureScaling(method="prior").fit(logits=logits, targets=targets)
    grid = torch.linspace(-3.0, 3.0, 6001, dtype=torch.float64)
    losses = [
        torch.nn.functional.cross_entropy(logits / t.exp(), targets, reduction="sum") + t.clamp(max=0) ** 2 / 0.32
        for t in grid
    ]
    assert np.log(scaling.temperature_) == pytest.approx(float(grid[int(torch.stack(losses).argmin())]), abs=1e-3)
    assert scaling.fit_report_.converged
    plain = TemperatureScaling().fit(logits=logits, targets=targets).temperature_
    assert plain < scaling.temperature_ < 1.0 if sharpened < 1.0 else scaling.temperature_ == plain


def test_many_rows_take_one_pass_and_find_the_same():
    logits, targets = drawn(n=70_000, sharpened=3.0)
    fit = fit_temperature(logits=logits, targets=targets)
    assert fit.iterations <= 2
    assert fit.converged
    slopes = torch.softmax(logits / fit.temperature, 1)
    slope = ((slopes * logits).sum(1) - logits.gather(1, targets[:, None]).squeeze(1)).mean()
    curvature = ((slopes * logits**2).sum(1) - (slopes * logits).sum(1) ** 2).mean()
    assert abs(float(slope / curvature) * fit.temperature) < 1e-6  # what a Newton step would still change


def test_rows_in_an_order_that_misleads_the_first_guess():
    logits, targets = drawn(n=80_000, sharpened=1.0)
    logits[::8] *= 50.0  # every eighth row, which the first guess is made from, is far too sure
    fit = fit_temperature(logits=logits, targets=targets)
    shuffled = torch.randperm(80_000, generator=torch.Generator().manual_seed(0))
    again = fit_temperature(logits=logits[shuffled], targets=targets[shuffled])
    assert fit.converged
    assert fit.temperature == pytest.approx(again.temperature, rel=1e-5)


def test_a_bad_value_outside_the_first_guess_is_found():
    logits, targets = drawn(n=40_000)
    logits[12_345, 2] = torch.nan
    with pytest.raises(ValueError, match="`logits` must be finite, got nan in row 12345, column 2"):
        fit_temperature(logits=logits, targets=targets)
    with pytest.raises(ValueError, match=r"`targets` must lie in 0\.\.3, got 4"):
        fit_temperature(logits=logits, targets=targets + 1)


def test_probabilities_give_the_temperature_of_their_logits():
    logits, targets = drawn()
    by_logits = TemperatureScaling().fit(logits=logits, targets=targets)
    by_probs = TemperatureScaling().fit(probs=torch.softmax(logits, 1), targets=targets)
    assert by_probs.temperature_ == pytest.approx(by_logits.temperature_, rel=1e-6)


def test_by_grid():
    logits, targets = drawn(n=800, sharpened=2.0)
    errors = [expected_calibration_error(logits=logits / t, targets=targets).item() for t in GRID]
    np.testing.assert_allclose(temperature_grid_errors(logits=logits, targets=targets).numpy(), errors, atol=1e-9)
    scaling = TemperatureScaling(method="grid").fit(logits=logits, targets=targets)
    assert scaling.temperature_ == GRID[int(np.argmin(errors))]
    assert scaling.fit_report_.iterations == 100
    assert GRID[0] == 0.1
    assert GRID[-1] == 10.0
    assert len(GRID) == 100


def test_the_first_of_equal_grid_temperatures_wins(monkeypatch):
    logits = torch.zeros(4, 2)  # every temperature gives 1/2
    assert fit_temperature_by_grid(logits=logits, targets=torch.tensor([0, 1, 0, 1])) == 0.1
    with pytest.warns(MetacalWarning, match=r"The temperature is 0\.1, an end of the grid"):
        TemperatureScaling(method="grid").fit(logits=logits, targets=torch.tensor([0, 1, 0, 1]))
    logits, targets = drawn(n=300)
    whole = temperature_grid_errors(logits=logits, targets=targets)
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", 64)
    assert torch.equal(temperature_grid_errors(logits=logits, targets=targets), whole)


@pytest.mark.parametrize("iterations", [10, 50])
def test_by_lbfgs_stops_short_as_published(iterations):
    logits, targets = drawn(sharpened=3.0)
    scaling = TemperatureScaling(method="lbfgs", max_iterations=iterations).fit(logits=logits, targets=targets)
    assert scaling.fit_report_.iterations <= iterations
    reference = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([reference], lr=0.01, max_iter=iterations)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / reference, targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert scaling.temperature_ == pytest.approx(reference.item(), rel=1e-9)
    assert abs(scaling.temperature_ - 3.0) > 0.3
    assert not scaling.fit_report_.converged


def test_lbfgs_never_leaves_the_bounds():
    logits, targets = torch.tensor([[1e4, 0.0]] * 4), torch.tensor([1, 1, 1, 1])
    assert 1e-3 <= fit_temperature_by_lbfgs(logits=logits, targets=targets).temperature <= 1e3
