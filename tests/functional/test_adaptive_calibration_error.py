"""Adaptive ECE against a loop: every layout, norm and number of bins, fewer samples than bins, ties in any order."""

import itertools

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import adaptive_calibration_error

NORMS = ["l1", "l2", "max"]
NUM_BINS = [1, 2, 10, 15, 100]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_equals_the_loop(layout, inputs, dtype):
    for ignore, num_bins in itertools.product((False, True), NUM_BINS):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        confidences, correct, _ = samples.read(layout, keywords)
        for norm in NORMS:
            ours = adaptive_calibration_error(**keywords, num_bins=num_bins, norm=norm).item()
            expected = oracles.adaptive_ece(confidences, correct, num_bins, norm)
            assert ours == pytest.approx(expected, abs=samples.tolerance(keywords)), (num_bins, norm, ignore)


@pytest.mark.parametrize("n", [1, 2, 3, 14])
def test_fewer_samples_than_bins(n):
    keywords = samples.draw("multiclass", n=n, inputs="probs", seed=n)
    confidences, correct, _ = samples.read("multiclass", keywords)
    expected = oracles.adaptive_ece(confidences, correct, 15)
    assert adaptive_calibration_error(**keywords).item() == pytest.approx(expected, abs=1e-9)


def test_ties_do_not_depend_on_the_order_of_samples():
    confidences, correct = samples.tied()
    expected = oracles.adaptive_ece(confidences.numpy(), correct.numpy(), 10)
    generator = torch.Generator().manual_seed(1)
    values = set()
    for _ in range(50):
        order = torch.randperm(len(correct), generator=generator)
        keywords = {"probs": confidences[order], "targets": correct[order].long()}
        values.add(adaptive_calibration_error(**keywords, num_bins=10).item())
    assert len(values) == 1
    assert values.pop() == pytest.approx(expected, abs=1e-9)
