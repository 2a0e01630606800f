"""What temperature scaling would bring: of samples that it was not fitted on."""

import pytest
import torch
from tests.evaluation.files import draw

from metacal.evaluation import (
    TemperatureGain,
    temperature_gain,
)
from metacal.functional import fit_temperature, negative_log_likelihood


def test_the_gain_is_of_samples_that_the_temperature_has_not_seen():
    logits, _, targets = draw(n=4000, num_classes=4)
    gain = temperature_gain(logits=3.0 * logits, targets=targets)
    assert gain.temperature == pytest.approx(3.0, rel=0.05)
    assert gain.nll_before == pytest.approx(negative_log_likelihood(logits=3.0 * logits, targets=targets).item())
    assert gain.nll_after < 0.7 * gain.nll_before
    assert gain.ece_after < 0.2 * gain.ece_before
    calibrated = temperature_gain(logits=logits, targets=targets)
    # In-sample the NLL could only fall; cross-fitted it may rise, and here there is nothing to gain.
    assert calibrated.nll_after == pytest.approx(calibrated.nll_before, abs=1e-3)
    assert temperature_gain(logits=logits[:1], targets=targets[:1]) is None


def test_a_gain_helps_where_both_figures_fall():
    figures = {"temperature": 2.0, "nll_before": 0.5, "ece_before": 0.1, "at_bound": False}
    for nll, ece, helps in ((0.4, 0.05, True), (0.4, 0.2, False), (0.6, 0.05, False)):
        gain = TemperatureGain(**figures, nll_after=nll, ece_after=ece, temperatures=torch.ones(3))
        assert gain.helps == helps
        assert gain.as_dict() == {**figures, "nll_after": nll, "ece_after": ece}


def test_a_temperature_at_a_bound_is_marked():
    logits = torch.eye(3)[torch.arange(60) % 3]
    assert temperature_gain(logits=logits, targets=(torch.arange(60) + 1) % 3).at_bound
    logits, _, targets = draw(n=300)
    assert not temperature_gain(logits=logits, targets=targets).at_bound


@pytest.mark.parametrize("n", [60, 50_000])  # fitted anew, and by one step from the temperature of all
def test_each_part_has_the_temperature_of_the_others(n):
    logits, _, targets = draw(n=n, num_classes=4)
    found = temperature_gain(logits=2.0 * logits, targets=targets).temperatures
    assert len(found.unique()) == 5
    for temperature in found.unique():
        others = found != temperature
        fit = fit_temperature(logits=2.0 * logits[others], targets=targets[others])
        assert temperature.item() == pytest.approx(fit.temperature, rel=2e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_targets_may_be_of_any_integer_type(dtype):
    logits = 3.0 * torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(60) % 4
    expected = temperature_gain(logits=logits, targets=targets)
    assert temperature_gain(logits=logits, targets=targets.to(dtype)) == expected
