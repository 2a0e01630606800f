"""Equal-mass bins: ties stay together, every sample is counted once, edges bound what is in a bin."""

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import equal_mass_statistics


@pytest.mark.parametrize("num_bins", [1, 2, 3, 15, 400])
@pytest.mark.parametrize("num_values", [1, 2, 7, 10_000])
def test_groups_are_those_of_the_loop(num_bins, num_values):
    confidences, correct = samples.tied(num_values=num_values)
    statistics = equal_mass_statistics(confidences, correct, num_bins)
    groups = oracles.equal_mass_groups(confidences.numpy(), correct.numpy(), num_bins)
    assert statistics.counts.tolist() == [len(group) for group in groups]
    assert statistics.correct_sums.tolist() == [sum(right for _, right in group) for group in groups]
    sums = [sum(confidence for confidence, _ in group) for group in groups]
    np.testing.assert_allclose(statistics.confidence_sums.numpy(), sums, atol=1e-7)
    for group, low, high in zip(groups, statistics.edges, statistics.edges[1:]):
        assert all(low <= confidence <= high for confidence, _ in group)


def test_same_to_the_bit_under_shuffles():
    confidences, correct = samples.tied(n=500, num_values=5)
    first = equal_mass_statistics(confidences, correct, 15)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        order = torch.randperm(len(correct), generator=generator)
        other = equal_mass_statistics(confidences[order], correct[order], 15)
        for name in ("counts", "correct_sums", "confidence_units", "edges"):
            assert torch.equal(getattr(first, name), getattr(other, name)), name


def test_equal_masses_without_ties():
    confidences = torch.linspace(0, 1, 103)
    counts = equal_mass_statistics(confidences, confidences > 0.5, 10).counts
    assert counts.sum() == 103 and counts.min() == 10 and counts.max() == 11


def test_different_edges_do_not_add():
    one, two = (equal_mass_statistics(torch.rand(20), torch.ones(20).bool(), 3) for _ in range(2))
    with pytest.raises(InvalidValueError, match=r"same bins only, got \(3,\) and \(3,\) bins or different edges"):
        one + two
