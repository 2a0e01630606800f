"""The interval of a share: Wilson's, as SciPy has it."""

import pytest
import torch

from metacal.functional.intervals import share_interval


def test_share_interval_is_wilsons():
    from scipy.stats import binomtest

    for successes, count in [(0, 1), (1, 1), (3, 7), (97, 100), (5000, 5000)]:
        expected = binomtest(successes, count).proportion_ci(method="wilson")
        low, high = share_interval(torch.tensor(successes), torch.tensor(count))
        assert (low.item(), high.item()) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert (low.item() == 0.0) == (successes == 0) and (high.item() == 1.0) == (successes == count)
    low, high = share_interval(torch.tensor(0), torch.tensor(0))
    assert (low.item(), high.item()) == (0.0, 1.0)
