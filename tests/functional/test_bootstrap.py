"""Bootstrap intervals: repeatable, around the plain value, narrower with more samples, near their aimed coverage."""

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import (
    bootstrap_interval,
    calibration_error,
    calibration_error_interval,
    equal_width_statistics,
    expected_calibration_error,
)
from metacal.functional.bootstrap import Interval, binned_interval, calibrated_quantile


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_estimate_is_the_plain_value(layout, norm):
    keywords = samples.draw(layout, n=100, ignore=True)
    interval = calibration_error_interval(**keywords, norm=norm, num_bins=10, num_resamples=50)
    plain = expected_calibration_error(**keywords, norm=norm, num_bins=10)
    assert torch.equal(interval.estimate, plain)
    assert 0.0 <= interval.low < interval.high


def test_a_seed_gives_the_same_interval_and_another_a_different_one():
    keywords = samples.draw("multiclass", n=300)
    intervals = [calibration_error_interval(**keywords, num_resamples=200, seed=seed) for seed in (3, 3, 4)]
    assert intervals[0] == intervals[1]
    assert intervals[0].low != intervals[2].low and intervals[0].high != intervals[2].high


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_interval_of_half_precision_confidences_is_that_of_their_float32_values(dtype):
    confidences = torch.linspace(0.3, 1.0, 60).to(dtype)
    correct = torch.arange(60) % 4 > 0
    assert binned_interval(confidences, correct) == binned_interval(confidences.float(), correct)


def test_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    calibration_error_interval(**samples.draw("multiclass"), num_resamples=10)
    assert torch.equal(torch.get_rng_state(), before)


def test_width_shrinks_as_the_root_of_n():
    widths = []
    for n in (500, 50_000):
        logits, targets = samples.multiclass(n, 3)
        interval = calibration_error_interval(logits=logits, targets=targets, num_resamples=200)
        widths.append((interval.high - interval.low).item())
    assert 6.0 < widths[0] / widths[1] < 16.0


def test_a_thousand_resamples_of_ten_thousand():
    logits, targets = samples.multiclass(10_000, 10)
    interval = calibration_error_interval(logits=logits, targets=targets, num_resamples=1000)
    assert 0.0 < interval.low < interval.estimate < interval.high < 1.0
    assert 0.01 < interval.high - interval.low < 0.04


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


def test_interval_reaches_0_when_chance_explains_the_estimate_and_not_otherwise():
    reaches = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        probs = torch.rand(500, generator=generator)
        targets = torch.bernoulli(probs, generator=generator).long()
        interval = calibration_error_interval(probs=probs, targets=targets, num_resamples=200, seed=seed)
        reaches.append(interval.low.item() == 0.0)
        off = calibration_error_interval(probs=probs**4, targets=targets, num_resamples=200, seed=seed)
        assert off.low > 0.05
    assert sum(reaches) >= 54


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("num_right", [0, 1, 9, 10])
def test_ends_of_a_calibration_error_lie_in_its_domain(num_right, norm):
    for confidence in (0.01, 0.5, 0.99):
        interval = binned_interval(torch.full((10,), confidence), torch.arange(10) < num_right, norm=norm)
        assert 0.0 <= interval.low <= interval.estimate <= interval.high <= 1.0, confidence


def test_ends_are_brought_into_a_domain_and_the_estimate_stays():
    interval = Interval(*torch.tensor([0.5, -0.2, 1.3], dtype=torch.float64))
    assert [value.item() for value in interval.within(0.0, 1.0)] == [0.5, 0.0, 1.0]
    assert [value.item() for value in interval.within(0.0)] == [0.5, 0.0, 1.3]


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_calibrated_quantile_is_that_of_simulated_calibrated_models(norm):
    confidences = torch.linspace(0.05, 0.95, 400, dtype=torch.float64).round(decimals=1)  # one value a bin
    statistics = equal_width_statistics(confidences, confidences > 2.0, 10)
    rng, errors = np.random.default_rng(0), []
    for _ in range(2000):
        correct = torch.from_numpy(rng.random(400)) < confidences
        errors.append(calibration_error(equal_width_statistics(confidences, correct, 10), norm).item())
    ours = calibrated_quantile(statistics, 0.9, norm, num_resamples=4000).item()
    assert ours == pytest.approx(np.quantile(errors, 0.9), rel=0.04)


def test_resamples_done_in_pieces_are_those_done_at_once(monkeypatch):
    keywords = samples.draw("multiclass", n=64)
    whole = calibration_error_interval(**keywords, num_resamples=60)
    monkeypatch.setattr("metacal.functional.bootstrap.DRAWS_AT_ONCE", 128)
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
    with pytest.raises(InvalidValueError, match=r"`samples` must hold at least one sample, got none"):
        bootstrap_interval(lambda rows: rows.double().sum(1), torch.zeros(0))
