"""Intervals of calibration errors, of any statistic, of means and of shares."""

import math

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import (
    bootstrap_interval,
    calibration_error_interval,
    equal_width_statistics,
    expected_calibration_error,
)
from metacal.functional.intervals import Z_95, error_interval, mean_interval, power_sums, share_interval


def world(gap, n, seed):
    """Confidences in [0.5, 1], right with a chance that is off by ``gap(confidence)``."""
    rng = np.random.default_rng(seed)
    confidences = 0.5 + 0.5 * np.sqrt(rng.random(n))
    return torch.from_numpy(confidences), torch.from_numpy(rng.random(n) < confidences + gap(confidences))


def ends(interval):
    return interval.low.item(), interval.high.item()


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_estimate_is_the_plain_value(layout, norm):
    keywords = samples.draw(layout, n=100, ignore=True)
    interval = calibration_error_interval(**keywords, norm=norm, num_bins=10, num_resamples=50)
    plain = expected_calibration_error(**keywords, norm=norm, num_bins=10)
    assert torch.equal(interval.estimate, plain)
    assert 0.0 <= interval.low < interval.high <= 1.0


def simulated_ends(counts, right, confidences, rng, draws=3000, level=0.95):
    """The same interval, slowly: every hypothesis of a fine grid, binomial right answers, multinomial bins."""
    size, tail = counts.sum(), 0.5 * (1.0 - level)
    gaps = right / counts - confidences
    estimate = np.abs(counts * gaps).sum() / size

    def errors(hypothesis):
        drawn = rng.multinomial(size, counts / size, size=draws)
        return np.abs(rng.binomial(drawn, confidences + hypothesis) - drawn * confidences).sum(1) / size

    typical = np.median(errors(0.0 * gaps))
    kept = []
    for shift in np.linspace(-1.0, 1.5, 251):
        sizes = np.maximum(np.abs(gaps) - shift * confidences * (1.0 - confidences), 0.0)
        values = errors(np.sign(gaps) * sizes)
        upper_tail = 2.0 * tail if (values <= typical).mean() > tail else tail
        if (values >= estimate).mean() >= upper_tail and (values <= max(estimate, typical)).mean() > tail:
            kept.append((counts / size * sizes).sum())
    return min(kept), max(kept)


@pytest.mark.parametrize("right", [(110, 190, 420), (115, 220, 440), (100, 170, 400)])
def test_ends_are_those_of_simulated_hypotheses(right):
    counts, confidences = np.array([200, 300, 500]), np.array([0.55, 0.72, 0.9])
    places = torch.from_numpy(np.repeat(confidences, counts))
    correct = torch.cat([torch.arange(int(n)) < k for n, k in zip(counts, right, strict=True)])
    found = ends(error_interval(equal_width_statistics(places, correct, 10), num_resamples=4000))
    expected = simulated_ends(counts, np.array(right), confidences, np.random.default_rng(0))
    assert found == pytest.approx(expected, abs=0.004)


def test_interval_of_one_bin_is_about_wilsons():
    statistics = equal_width_statistics(torch.full((400,), 0.8), torch.arange(400) < 280)
    low, high = share_interval(torch.tensor(280), torch.tensor(400))
    expected = (0.8 - high.item(), 0.8 - low.item())
    assert ends(error_interval(statistics, num_resamples=8000)) == pytest.approx(expected, abs=3e-3)


@pytest.mark.parametrize(
    ("gap", "truth", "n"),
    [
        (lambda c: 0.0 * c, 0.0, 500),
        (lambda c: -0.05 + 0.0 * c, 0.05, 500),
        (lambda c: -0.10 + 0.0 * c, 0.10, 100),
        (lambda c: -0.0414 * np.sin(5.0 * np.pi * c), 0.0261, 2000),
        (lambda c: -0.10 * (c > 14 / 15), 0.0249, 500),
    ],
    ids=["calibrated", "5 points", "10 points, few samples", "wiggle", "one bin off"],
)
def test_coverage(gap, truth, n):
    """The basic bootstrap interval holds the true error in 66, 87, 92, 85 and 78 % of these."""
    hits = 0
    for seed in range(200):
        statistics = equal_width_statistics(*world(gap, n, seed))
        low, high = ends(error_interval(statistics, num_resamples=250, seed=seed))
        hits += low <= truth <= high
    assert 184 <= hits <= 199


def test_no_interval_ends_at_its_estimate_unless_it_is_one_sided():
    one_sided = 0
    for seed in range(100):
        interval = error_interval(equal_width_statistics(*world(lambda c: 0.0 * c, 300, seed)), num_resamples=200)
        assert interval.estimate < interval.high
        assert interval.is_upper_bound or 0.0 < interval.low < interval.estimate
        one_sided += interval.is_upper_bound
    assert one_sided >= 90


def test_the_interval_of_an_error_beyond_chance_has_two_ends():
    for seed in range(20):
        interval = error_interval(equal_width_statistics(*world(lambda c: -0.2 + 0.0 * c, 500, seed)))
        assert not interval.is_upper_bound and 0.1 < interval.low < interval.estimate < interval.high < 0.3


def test_an_error_measured_in_very_many_bins_lies_above_its_interval():
    confidences, correct = world(lambda c: -0.02 + 0.0 * c, 1000, seed=0)
    interval = error_interval(equal_width_statistics(confidences, correct, 400))
    assert interval.high < interval.estimate  # most of what was measured is noise
    assert interval.low <= 0.02 <= interval.high


def test_a_seed_gives_the_same_interval_and_another_a_different_one():
    keywords = samples.draw("multiclass", n=300)
    intervals = [calibration_error_interval(**keywords, num_resamples=200, seed=seed) for seed in (3, 3, 4)]
    assert intervals[0] == intervals[1]
    assert intervals[0].low != intervals[2].low and intervals[0].high != intervals[2].high


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_interval_does_not_depend_on_the_dtype(dtype):
    confidences, correct = torch.linspace(0.3, 0.99, 60).to(dtype), torch.arange(60) % 4 > 0
    narrow, wide = (error_interval(equal_width_statistics(c, correct)) for c in (confidences, confidences.double()))
    assert ends(narrow) == pytest.approx(ends(wide), abs=1e-9)


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    calibration_error_interval(**samples.draw("multiclass"), num_resamples=10)
    assert torch.equal(torch.get_rng_state(), before)


def test_width_shrinks_as_the_root_of_n():
    widths = []
    for n in (500, 50_000):
        low, high = ends(error_interval(equal_width_statistics(*world(lambda c: -0.2 + 0.0 * c, n, 0))))
        widths.append(high - low)
    assert 8.0 < widths[0] / widths[1] < 12.0


def test_a_higher_level_gives_a_wider_interval():
    statistics = equal_width_statistics(*world(lambda c: -0.1 + 0.0 * c, 1000, seed=0))
    lows, highs = zip(*(ends(error_interval(statistics, level=level)) for level in (0.8, 0.95, 0.99)), strict=True)
    assert lows[0] > lows[1] > lows[2] and highs[0] < highs[1] < highs[2]


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("num_right", [0, 1, 9, 10])
def test_ends_lie_in_the_domain_and_hold_the_estimate_of_one_bin(num_right, norm):
    for confidence in (0.0, 0.01, 0.5, 0.99, 1.0):
        statistics = equal_width_statistics(torch.full((10,), confidence), torch.arange(10) < num_right)
        interval = error_interval(statistics, norm)
        assert 0.0 <= interval.low <= interval.estimate <= interval.high <= 1.0, confidence
        assert interval.low < interval.high, confidence


def test_a_single_draw_gives_an_interval_too():
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        probs, targets = torch.rand(10, generator=generator), torch.randint(2, (10,), generator=generator)
        low, high = ends(calibration_error_interval(probs=probs, targets=targets, num_bins=2, num_resamples=1))
        assert 0.0 <= low <= high <= 1.0


def test_ten_right_answers_do_not_make_a_model_certain():
    """It may be wrong three times in ten: ``0.7 ** 10`` is 0.028."""
    for confidence in (0.999, 1.0):
        statistics = equal_width_statistics(torch.full((10,), confidence), torch.ones(10, dtype=torch.bool))
        low, high = ends(error_interval(statistics))
        assert low == 0.0 and 0.25 < high < 0.4


def test_draws_done_in_pieces_are_those_done_at_once(monkeypatch):
    keywords = samples.draw("multiclass", n=64)
    whole = calibration_error_interval(**keywords, num_resamples=60)
    monkeypatch.setattr("metacal.functional.intervals.VALUES_AT_ONCE", 128)
    assert calibration_error_interval(**keywords, num_resamples=60) == whole


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_resamples": 0}, InvalidValueError, r"`num_resamples` must be an integer >= 1, got 0\."),
        ({"num_resamples": 1.5}, InvalidTypeError, r"`num_resamples` must be an integer >= 1, got 1\.5\."),
        ({"num_resamples": True}, InvalidTypeError, r"`num_resamples` must be an integer >= 1, got True\."),
        ({"level": 0.0}, InvalidValueError, r"`level` must be in \(0, 1\), got 0\.0\."),
        ({"level": 95}, InvalidValueError, r"`level` must be in \(0, 1\), got 95\."),
        ({"level": float("nan")}, InvalidValueError, r"`level` must be in \(0, 1\), got nan\."),
        ({"norm": "l3"}, InvalidValueError, r"`norm` must be one of 'l1', 'l2', 'max', got 'l3'\."),
        ({"num_bins": 0}, InvalidValueError, r"`num_bins` must be an integer >= 1, got 0\."),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        calibration_error_interval(**samples.draw("multiclass"), **arguments)


def test_no_samples():
    with pytest.raises(InvalidValueError, match=r"`statistics` must hold at least one sample, got none"):
        error_interval(equal_width_statistics(torch.zeros(0), torch.zeros(0, dtype=torch.bool)))


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


def test_a_seed_gives_the_same_interval_and_another_a_different_one_of_any_statistic():
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
def test_bad_arguments_of_any_statistic(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        interval_of_mean(torch.rand(5), **arguments)


def test_no_samples_of_any_statistic():
    with pytest.raises(InvalidValueError, match=r"`samples` must hold at least one sample, got none"):
        bootstrap_interval(lambda rows: rows.double().sum(1), torch.zeros(0))


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


def test_share_interval_is_wilsons():
    from scipy.stats import binomtest

    for successes, count in [(0, 1), (1, 1), (3, 7), (97, 100), (5000, 5000)]:
        expected = binomtest(successes, count).proportion_ci(method="wilson")
        low, high = share_interval(torch.tensor(successes), torch.tensor(count))
        assert (low.item(), high.item()) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert (low.item() == 0.0) == (successes == 0) and (high.item() == 1.0) == (successes == count)
    low, high = share_interval(torch.tensor(0), torch.tensor(0))
    assert (low.item(), high.item()) == (0.0, 1.0)
