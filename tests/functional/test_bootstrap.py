"""The bootstrap interval of any statistic: repeatable, in the basic form, near its aimed coverage."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.functional import bootstrap_interval


def test_coverage_of_a_mean_is_near_the_level():
    generator = torch.Generator().manual_seed(0)
    hits = 0
    for seed in range(200):
        values = torch.rand(60, generator=generator)
        interval = bootstrap_interval(
            lambda rows, values=values: values[rows].mean(1), values, num_resamples=200, level=0.8, seed=seed
        )
        hits += bool(interval.low < 0.5 < interval.high)
    assert 0.7 < hits / 200 < 0.88


def test_spread_of_the_resamples_is_turned_over():
    """The basic interval, ``2 * estimate - quantile``, not the percentile one."""
    values = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 8  # skewed
    seen = []

    def statistic(rows):
        result = values[rows].mean(1).sqrt()
        seen.extend(result.tolist())
        return result

    interval = bootstrap_interval(statistic, values, num_resamples=400, level=0.9)
    estimate, draws = seen[0], seen[1:]
    assert len(draws) == 400 and interval.estimate.item() == estimate
    low, high = 2 * estimate - np.quantile(draws, [0.95, 0.05])
    assert (interval.low.item(), interval.high.item()) == pytest.approx((low, high), abs=1e-12)


def interval_of_mean(values, **keywords):
    return bootstrap_interval(lambda rows: values[rows].mean(1), values, **keywords)


def test_a_seed_gives_the_same_interval_and_another_a_different_one():
    values = torch.rand(60, generator=torch.Generator().manual_seed(0))
    intervals = [interval_of_mean(values, seed=seed) for seed in (3, 3, 4)]
    assert intervals[0] == intervals[1]
    assert intervals[0].low != intervals[2].low and intervals[0].high != intervals[2].high


def test_resamples_done_in_pieces_are_those_done_at_once(monkeypatch):
    values = torch.rand(64, generator=torch.Generator().manual_seed(0))
    whole = interval_of_mean(values, num_resamples=60)
    monkeypatch.setattr("metacal.functional.intervals.DRAWS_AT_ONCE", 128)
    assert interval_of_mean(values, num_resamples=60) == whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_resamples": 0}, r"`num_resamples` must be an integer >= 1, got 0\."),
        ({"level": 95}, r"`level` must be in \(0, 1\), got 95\."),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        interval_of_mean(torch.rand(5), **arguments)


def test_no_samples():
    with pytest.raises(InvalidValueError, match=r"`samples` must hold at least one sample, got none"):
        bootstrap_interval(lambda rows: rows.double().sum(1), torch.zeros(0))
