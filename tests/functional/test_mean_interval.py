"""The interval of a mean loss: Hall's transform, balanced where losses are lopsided, none where nothing varies."""

import math

import numpy as np
import pytest
import torch

from metacal.functional.intervals import Z_95, mean_interval, power_sums


def interval_of(values, **keywords):
    values = torch.as_tensor(np.asarray(values))
    return mean_interval(len(values), power_sums(values), **keywords)


@pytest.mark.parametrize("power", [1, 3, 6])
def test_transformed_ends_are_the_normal_quantiles(power):
    values = np.random.default_rng(0).random(50) ** power
    mean, deviation = values.mean(), values.std()
    g = ((values - mean) ** 3).mean() / deviation**3 / math.sqrt(50)
    for end, z in zip(interval_of(values), (Z_95, -Z_95), strict=True):
        t = (mean - end) / (deviation / math.sqrt(49))
        assert t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6 == pytest.approx(z, abs=1e-9)


def test_coverage_of_a_lopsided_mean():
    """The normal interval holds 93 %, and misses below four times as often as above."""
    rng = np.random.default_rng(0)
    below = above = 0
    for _ in range(2000):
        low, high = interval_of(rng.gamma(0.5, 2.0, 100))
        below, above = below + (high < 1.0), above + (low > 1.0)
    assert 0.93 < 1.0 - (below + above) / 2000 < 0.97
    assert 0.015 < below / 2000 < 0.04 and 0.015 < above / 2000 < 0.04


def test_values_without_skewness_have_the_normal_interval():
    values = np.tile([0.2, 0.4], 500)
    half = Z_95 * 0.1 / math.sqrt(999)
    assert interval_of(values) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-12)


def test_ends_stay_in_the_domain():
    rare = [0.0] * 99 + [2.0]
    low, high = interval_of(rare)
    assert low >= 0.0 and interval_of(rare, most=0.05) == (low, 0.05) and high > 0.05


@pytest.mark.parametrize(
    "values", [[0.7], [0.1] * 50, [0.5, math.inf], [1e-130, 2e-130, 4e-130], [1e200, 2e200], [0.0, 0.0]]
)
def test_what_says_nothing_about_its_scatter_has_no_interval(values):
    assert all(math.isnan(end) for end in interval_of(values))


def test_dtype_and_order_do_not_matter():
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    assert interval_of(values.double().flip(0)) == pytest.approx(interval_of(values), abs=1e-12)
