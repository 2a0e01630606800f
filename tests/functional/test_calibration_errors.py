"""Calibration errors against slow loops over their definitions, and what each promises."""

import itertools
import math

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import MetacalWarning
from metacal.functional import (
    adaptive_calibration_error,
    calibration_error,
    classwise_calibration_error,
    debiased_calibration_error,
    equal_mass_statistics,
    equal_width_statistics,
    expected_calibration_error,
    smooth_calibration_error,
    sweep_calibration_error,
)
from metacal.functional.calibration_errors import debiased_error, folded_normal_mean, sweep_statistics

NORMS = ["l1", "l2", "max"]
NUM_BINS = [1, 2, 10, 15, 100]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_expected_error_equals_the_loop(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        confidences, correct, _ = samples.read(layout, keywords)
        for norm in NORMS:
            ours = expected_calibration_error(**keywords, norm=norm)
            assert ours.dtype == torch.float64 and ours.shape == ()
            expected = oracles.ece(confidences, correct, norm=norm)
            assert ours.item() == pytest.approx(expected, abs=samples.tolerance(keywords)), (norm, ignore)


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 3), (9, 2), (150, 10), (60, 100)])
@pytest.mark.parametrize("inputs", ["logits", "probs"])
def test_equals_the_loop_over_sizes_and_bins(n, num_classes, inputs):
    keywords = samples.draw("multiclass", n=n, num_classes=num_classes, inputs=inputs, seed=n)
    confidences, correct, _ = samples.read("multiclass", keywords)
    for num_bins, norm in itertools.product(NUM_BINS, NORMS):
        ours = expected_calibration_error(**keywords, num_bins=num_bins, norm=norm).item()
        expected = oracles.ece(confidences, correct, num_bins, norm)
        assert ours == pytest.approx(expected, abs=samples.tolerance(keywords)), (num_bins, norm)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_with_millions_of_samples_in_one_bin(dtype):
    """A float32 running sum stops growing at 2**24; ours is right to 1e-9."""
    n = 5_000_000
    probs = torch.full((n,), 0.905, dtype=dtype)
    probs[: n // 4] = 0.917
    targets = (torch.arange(n) % 100 < 83).long()
    low, high = (float(np.asarray(value, dtype=probs.numpy().dtype)) for value in (0.905, 0.917))
    expected = abs(0.83 - (0.75 * low + 0.25 * high))
    assert expected_calibration_error(probs=probs, targets=targets).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("probs", "targets", "expected"),
    [
        ([0.0, 0.0], [0, 0], 0.0),
        ([1.0, 1.0], [1, 1], 0.0),
        ([0.0, 1.0], [1, 0], 1.0),
        ([0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, 0, 0, 0], 0.0),
        ([1.0000001], [1], 0.0),  # rounding above 1 is 1, not a logit
        ([1.0000001], [0], 1.0),
    ],
)
def test_known_values(probs, targets, expected):
    value = expected_calibration_error(probs=torch.tensor(probs), targets=torch.tensor(targets)).item()
    assert value == pytest.approx(expected, abs=1e-7)


def test_logits_within_the_unit_interval_are_logits():
    scores, targets = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])
    as_probs = expected_calibration_error(probs=scores, targets=targets).item()
    with pytest.warns(MetacalWarning, match="`logits` look like probabilities"):
        as_logits = expected_calibration_error(logits=scores, targets=targets).item()
    confidences = oracles.softmax(scores.numpy()).max(axis=1)
    assert as_probs == pytest.approx(0.15, abs=1e-6)
    assert as_logits == pytest.approx(np.mean(1.0 - confidences), abs=1e-6)


def test_rows_of_probs_slightly_above_one_are_not_softmaxed_again():
    probs = torch.tensor([[1.0000001, 0.0], [0.0, 1.0000001]])
    assert expected_calibration_error(probs=probs, targets=torch.tensor([0, 1])).item() == 0.0


@pytest.mark.parametrize("offset", [0.0, 100.0, 20_000.0, -20_000.0])
def test_a_constant_added_to_the_logits_changes_nothing(offset):
    """Integers of this size are exact in float32, so the softmax is that of (0, 1) to rounding."""
    value = expected_calibration_error(logits=torch.tensor([[0.0, 1.0]]) + offset, targets=torch.tensor([1]))
    assert value.item() == pytest.approx(0.2689414, abs=1e-6)


def test_value_is_the_same_under_autocast_inference_mode_and_with_gradients():
    for inputs in ("logits", "probs"):
        keywords = samples.draw("multiclass", n=200, num_classes=10, inputs=inputs)
        plain = expected_calibration_error(**keywords)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(expected_calibration_error(**keywords), plain)
        with torch.inference_mode():  # first use of 37 bins: their edges are kept, and used again outside
            inside = expected_calibration_error(**keywords, num_bins=37)
        assert torch.equal(inside.clone(), expected_calibration_error(**keywords, num_bins=37))
        tracked = expected_calibration_error(**{**keywords, inputs: keywords[inputs].requires_grad_()})
        assert torch.equal(tracked, plain) and not tracked.requires_grad


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10.npz", 0.9109, 0.0537), ("densenet-bc-100-cifar-100.npz", 0.7541, 0.1422)],
)
def test_real_predictions(data_folder, file, accuracy, ece):
    with np.load(data_folder / "predictions" / file, allow_pickle=False) as arrays:
        probs, targets = torch.tensor(arrays["predictions"]), torch.tensor(arrays["ground_truth"])
    targets = targets.reshape(-1).long()
    assert round((probs.argmax(1) == targets).double().mean().item(), 4) == accuracy
    assert round(expected_calibration_error(probs=probs, targets=targets).item(), 4) == ece
    confidences, correct = oracles.top_label(probs.numpy(), targets.numpy())
    expected = oracles.ece(confidences[:2000], correct[:2000])
    ours = expected_calibration_error(probs=probs[:2000], targets=targets[:2000]).item()
    assert ours == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_adaptive_error_equals_the_loop(layout, inputs, dtype):
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


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_classwise_error_equals_the_loop(layout, inputs, dtype):
    for ignore in (False, True):
        keywords = samples.draw(layout, inputs=inputs, dtype=dtype, ignore=ignore)
        _, _, columns = samples.read(layout, keywords)
        for norm in NORMS:
            ours = classwise_calibration_error(**keywords, norm=norm).item()
            expected = sum(oracles.ece(*column, norm=norm) for column in columns) / len(columns)
            assert ours == pytest.approx(expected, abs=samples.tolerance(keywords)), (norm, ignore)


@pytest.mark.parametrize("num_bins", [1, 2, 10, 15, 100])
@pytest.mark.parametrize("threshold", [None, 0.0, 0.1, 0.6])
def test_thresholds_and_bins(num_bins, threshold):
    keywords = samples.draw("multiclass", n=60, num_classes=6, inputs="probs")
    probs, targets = keywords["probs"].numpy(), keywords["targets"].numpy()
    ours = classwise_calibration_error(**keywords, num_bins=num_bins, threshold=threshold).item()
    assert ours == pytest.approx(oracles.classwise_ece(probs, targets, num_bins, threshold=threshold), abs=1e-9)


def test_a_class_left_empty_by_the_threshold_is_left_out_of_the_mean():
    probs = torch.tensor([[0.8, 0.15, 0.05], [0.6, 0.35, 0.05]])
    value = classwise_calibration_error(probs=probs, targets=torch.tensor([0, 1]), threshold=0.1, num_bins=1).item()
    assert value == pytest.approx((abs(0.7 - 0.5) + abs(0.25 - 0.5)) / 2, abs=1e-7)


@pytest.mark.parametrize("absent", [0, 2, 4])
def test_classes_absent_from_the_labels_count(absent):
    keywords = samples.draw("multiclass", n=80, num_classes=5, inputs="probs")
    targets = torch.where(keywords["targets"] == absent, 1 if absent != 1 else 0, keywords["targets"])
    ours = classwise_calibration_error(probs=keywords["probs"], targets=targets).item()
    assert ours == pytest.approx(oracles.classwise_ece(keywords["probs"].numpy(), targets.numpy()), abs=1e-9)


def test_one_label_for_all_still_averages_over_every_class():
    probs = torch.tensor([[0.5, 0.25, 0.25]]).repeat(8, 1)
    value = classwise_calibration_error(probs=probs, targets=torch.zeros(8, dtype=torch.int64)).item()
    assert value == pytest.approx((0.5 + 0.25 + 0.25) / 3, abs=1e-9)


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


@pytest.mark.parametrize("inputs", ["logits", "probs"])
@pytest.mark.parametrize("layout", samples.LAYOUTS)
def test_sweep_error_equals_the_loop(layout, inputs):
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


SETS = {
    "spread": ([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95] * 4, [0, 0, 0, 1, 1, 1, 1] * 4),
    "too sure": ([0.9, 0.95, 0.97, 0.99] * 6, [1, 0, 1, 0] * 6),
    "at the ends": ([0.0, 1.0, 0.0, 1.0, 0.5] * 4, [0, 1, 1, 0, 1] * 4),
    "one sample": ([0.3], [1]),
    "nearly calibrated": ([0.25] * 4 + [0.75] * 4, [1, 0, 0, 0, 1, 1, 1, 0]),
    "wrong all over": ([0.1, 0.9] * 10, [1, 0] * 10),
}


@pytest.mark.parametrize("name", SETS)
def test_smooth_error_equals_the_loop(name):
    probs, targets = torch.tensor(SETS[name][0]), torch.tensor(SETS[name][1])
    expected = oracles.smooth_ece(probs.numpy(), targets.numpy(), points=2000)
    ours = smooth_calibration_error(probs=probs, targets=targets).item()
    assert ours == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("layout", "inputs", "ignore"),
    [
        ("multiclass", "logits", False),
        ("segmentation", "probs", True),
        ("binary", "logits", True),
        ("multilabel", "probs", False),
    ],
)
def test_equals_the_loop_in_every_layout(layout, inputs, ignore):
    keywords = samples.draw(layout, n=12, inputs=inputs, ignore=ignore)
    confidences, correct, _ = samples.read(layout, keywords)
    expected = oracles.smooth_ece(confidences, correct, points=1000)
    assert smooth_calibration_error(**keywords).item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_narrow_dtypes_are_widened():
    keywords = samples.draw("multiclass", n=200, inputs="probs", dtype=torch.float16)
    wide = {**keywords, "probs": keywords["probs"].float()}
    assert torch.equal(smooth_calibration_error(**keywords), smooth_calibration_error(**wide, validate=False))


def test_calibrated_data_are_near_0_and_fall_with_n():
    errors = []
    for n in (100, 10_000, 1_000_000):
        generator = torch.Generator().manual_seed(0)
        probs = torch.rand(n, generator=generator)
        targets = torch.bernoulli(probs, generator=generator).long()
        errors.append(smooth_calibration_error(probs=probs, targets=targets).item())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.005
