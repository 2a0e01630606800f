"""ECE-sweep against a loop that raises the number of bins one by one."""

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import calibration_error, sweep_calibration_error
from metacal.functional.calibration_errors import sweep_statistics


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop(layout, inputs):
    for dtype in samples.DTYPES:
        for ignore in (False, True):
            keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
            confidences, correct, _ = samples.read(layout, keywords)
            ours = sweep_calibration_error(**keywords).item()
            assert ours == pytest.approx(oracles.sweep_ece(confidences, correct), abs=samples.tolerance(keywords))


@pytest.mark.parametrize("n", [1, 2, 3, 20, 333, 2000])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 20.0])
def test_equals_the_loop_from_noise_to_certainty(n, sharpness):
    generator = torch.Generator().manual_seed(n)
    probs = torch.rand(n, generator=generator)
    targets = torch.bernoulli(torch.sigmoid((probs - 0.5) * sharpness), generator=generator).long()
    expected = oracles.sweep_ece(probs.numpy(), targets.numpy())
    assert sweep_calibration_error(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-9)


def test_perfectly_monotone_data_gets_a_bin_a_sample():
    probs = torch.linspace(0.05, 0.95, 301)
    targets = (probs > 0.4).long()
    assert sweep_statistics(probs, targets == 1).num_bins == 301
    expected = np.abs(targets.double().numpy() - probs.double().numpy()).mean()
    assert sweep_calibration_error(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-9)


def test_falling_accuracies_leave_one_bin():
    probs = torch.linspace(0.05, 0.95, 100)
    targets = (probs < 0.4).long()
    assert sweep_statistics(probs, targets == 1).num_bins == 1
    value = sweep_calibration_error(probs=probs, targets=targets).item()
    assert value == pytest.approx(abs(0.5 - targets.double().mean().item()), abs=1e-7)


def test_first_number_of_bins_that_breaks_the_order_ends_the_sweep_beyond_4096_samples():
    """Right and wrong by turns: 1 and 2 bins have even accuracies, 3 do not, 4096 pairs do again."""
    probs = torch.linspace(0.3, 0.99, 8192, dtype=torch.float64)
    correct = torch.arange(8192) % 2 == 0
    value = calibration_error(sweep_statistics(probs, correct)).item()
    assert value == pytest.approx(oracles.sweep_ece(probs.numpy(), correct.numpy()), abs=1e-9)
    assert sweep_statistics(probs, correct).num_bins == 2


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_norms_are_over_the_bins_found(norm):
    keywords = samples.draw("binary", n=200, inputs="probs")
    confidences, correct, _ = samples.read("binary", keywords)
    num_bins = sweep_statistics(keywords["probs"], keywords["targets"] == 1).num_bins
    expected = oracles.adaptive_ece(confidences, correct, num_bins, norm)
    assert 1 < num_bins < 200
    assert sweep_calibration_error(**keywords, norm=norm).item() == pytest.approx(expected, abs=1e-9)
