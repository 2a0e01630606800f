"""Debiased errors: l2 against a loop, l1 against a simulation, and both near 0 for calibrated data."""

import math

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import (
    adaptive_calibration_error,
    debiased_calibration_error,
    equal_mass_statistics,
    equal_width_statistics,
)
from metacal.functional.calibration_errors import debiased_error, folded_normal_mean


def equal_width_l2(confidences, correct, num_bins):
    total = 0.0
    numbers = np.array([oracles.bin_number(confidence, num_bins) for confidence in confidences])
    for m in range(num_bins):
        size = int((numbers == m).sum())
        if size > 1:
            accuracy = correct[numbers == m].mean()
            gap = accuracy - confidences[numbers == m].astype(np.float64).mean()
            total += size / len(correct) * (gap**2 - accuracy * (1 - accuracy) / (size - 1))
    return math.sqrt(max(total, 0.0))


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_l2_equals_the_loop(layout, inputs):
    for dtype in samples.DTYPES:
        for ignore in (False, True):
            keywords = samples.draw(layout, n=150, inputs=inputs, dtype=dtype, ignore=ignore)
            confidences, correct, _ = samples.read(layout, keywords)
            for num_bins in (1, 2, 15):
                ours = debiased_calibration_error(**keywords, num_bins=num_bins).item()
                expected = oracles.debiased_l2(confidences, correct, num_bins)
                # A root magnifies rounding near 0, so squares are compared.
                assert ours**2 == pytest.approx(expected**2, abs=samples.tolerance(keywords)), (dtype, num_bins)


@pytest.mark.parametrize("num_bins", [1, 2, 10, 15, 100])
def test_l2_over_equal_width_bins_equals_the_loop(num_bins):
    keywords = samples.draw("multiclass", n=300, inputs="probs")
    confidences, correct, _ = samples.read("multiclass", keywords)
    ours = debiased_calibration_error(**keywords, num_bins=num_bins, binning="equal_width").item()
    assert ours**2 == pytest.approx(equal_width_l2(confidences, correct, num_bins) ** 2, abs=1e-9)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
@pytest.mark.parametrize("seed", range(3))
def test_l1_equals_a_simulation_of_its_definition(binning, seed):
    keywords = samples.draw("binary", n=400, inputs="probs", seed=seed)
    probs, targets = keywords["probs"], keywords["targets"]
    bins = {"equal_mass": equal_mass_statistics, "equal_width": equal_width_statistics}[binning]
    statistics = bins(probs, targets == 1, 10)
    accuracies, weights = statistics.accuracies.numpy(), statistics.weights.numpy()
    confidences, counts = statistics.confidences.numpy(), statistics.counts.numpy()
    spread = np.sqrt(accuracies * (1 - accuracies) / np.maximum(counts, 1))
    draws = np.random.default_rng(seed).normal(accuracies, spread, size=(200_000, 10))
    errors = (weights * np.abs(draws - confidences)).sum(axis=1)
    plug_in = (weights * np.abs(accuracies - confidences)).sum()
    expected = max(0.0, 2 * plug_in - errors.mean())
    ours = debiased_calibration_error(**keywords, num_bins=10, norm="l1", binning=binning).item()
    assert ours == pytest.approx(expected, abs=5 * errors.std() / math.sqrt(len(errors)))
    assert 0.0 < ours < plug_in


def test_folded_normal_mean_at_its_ends():
    mean, deviation = torch.tensor([0.3, -0.3, 0.0, 0.0]).double(), torch.tensor([0.0, 0.0, 1.0, 0.0]).double()
    expected = torch.tensor([0.3, 0.3, math.sqrt(2 / math.pi), 0.0], dtype=torch.float64)
    torch.testing.assert_close(folded_normal_mean(mean, deviation), expected, atol=1e-7, rtol=0.0)


@pytest.mark.parametrize(("norm", "left"), [("l1", 0.75), ("l2", 0.6)])
def test_bias_is_taken_out_of_calibrated_data(norm, left):
    debiased, plug_in = [], []
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        probs = torch.rand(1000, generator=generator)
        keywords = {"probs": probs, "targets": torch.bernoulli(probs, generator=generator).long()}
        debiased.append(debiased_calibration_error(**keywords, norm=norm).item())
        plug_in.append(adaptive_calibration_error(**keywords, norm=norm).item())
    assert np.mean(debiased) < left * np.mean(plug_in)
    assert all(low < high for low, high in zip(debiased, plug_in))


def test_single_samples_carry_no_l2_information_and_nothing_is_nan():
    assert debiased_calibration_error(probs=torch.tensor([0.2, 0.7]), targets=torch.tensor([1, 0])).item() == 0.0
    value = debiased_calibration_error(probs=torch.tensor([0.2, 0.7]), targets=torch.tensor([1, 0]), norm="l1").item()
    assert value == pytest.approx(0.75, abs=1e-6)


def test_without_samples_is_nan():
    empty = equal_width_statistics(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    assert debiased_error(empty, "l1").isnan() and debiased_error(empty, "l2").isnan()
