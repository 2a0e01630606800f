"""Bins: where every edge goes, sums that are exact, statistics that add, ties, and enough samples."""

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import (
    BinStatistics,
    calibration_error,
    equal_mass_statistics,
    equal_width_statistics,
    noise_floor,
    sample_size_warning,
)
from metacal.functional import inputs as inputs_module
from metacal.functional.binning import UNITS, confidence_and_correctness, equal_width_index
from metacal.functional.inputs import read_inputs

FIELDS = ("counts", "correct_sums", "confidence_units", "edges")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_edge_belongs_to_the_lower_bin_and_its_neighbours_to_either_side(dtype):
    for num_bins in range(1, 201):
        edges = torch.tensor([m / num_bins for m in range(num_bins + 1)], dtype=torch.float64).to(dtype)
        bins = torch.arange(num_bins)
        above = torch.nextafter(edges, torch.full_like(edges, 2.0))
        below = torch.nextafter(edges, torch.full_like(edges, -1.0))
        assert torch.equal(equal_width_index(edges[1:], num_bins), bins), num_bins
        assert torch.equal(equal_width_index(above[:-1], num_bins), bins), num_bins
        assert torch.equal(equal_width_index(below[1:], num_bins), bins), num_bins
        assert equal_width_index(edges[:1], num_bins).tolist() == [0]
        assert equal_width_index(above[-1:], num_bins).tolist() == [num_bins - 1]


@pytest.mark.parametrize("num_bins", [1, 3, 15, 1000])
def test_index_equals_a_search_in_the_edges(num_bins):
    for dtype in (torch.float32, torch.float64):
        confidences = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=dtype)
        edges = (torch.arange(num_bins + 1, dtype=torch.float64) / num_bins).to(dtype)
        expected = (torch.searchsorted(edges, confidences) - 1).clamp(min=0)
        assert torch.equal(equal_width_index(confidences, num_bins), expected)


def test_statistics_add_to_the_bit_however_they_are_split():
    generator = torch.Generator().manual_seed(0)
    confidences = torch.rand(1000, generator=generator)
    correct = torch.rand(1000, generator=generator) < confidences
    whole = equal_width_statistics(confidences, correct, 15)
    for sizes in ([1000], [1, 999], [300, 0, 700], [10] * 100):
        order = torch.randperm(1000, generator=generator)
        total = BinStatistics.zeros(15, device=torch.device("cpu"))
        for part in torch.split(order, sizes):
            total = total + equal_width_statistics(confidences[part], correct[part], 15)
        for name in FIELDS:
            assert torch.equal(getattr(total, name), getattr(whole, name)), (name, sizes)


def test_statistics_hold_what_fell_into_the_bins():
    statistics = equal_width_statistics(torch.tensor([0.25, 0.5, 0.75, 1.0]), torch.tensor([0, 1, 1, 1]).bool(), 2)
    assert statistics.counts.tolist() == [2, 2] and statistics.correct_sums.tolist() == [1, 2]
    assert statistics.confidence_units.tolist() == [int(0.75 * UNITS), int(1.75 * UNITS)]
    assert statistics.confidences.tolist() == [0.375, 0.875] and statistics.accuracies.tolist() == [0.5, 1.0]
    assert statistics.gaps.tolist() == [0.125, 0.125] and statistics.weights.tolist() == [0.5, 0.5]
    assert statistics.num_bins == 2 and statistics.total == 4 and statistics.edges.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("measure", [equal_width_statistics, equal_mass_statistics])
@pytest.mark.parametrize("num_bins", [15, 150])
def test_half_precision_confidences_are_counted_as_their_float32_values(measure, dtype, num_bins):
    confidences = torch.cat((torch.full((4,), 0.9), torch.linspace(0, 1, 301))).to(dtype)
    correct = torch.arange(305) % 4 > 0
    halves, singles = (measure(values, correct, num_bins) for values in (confidences, confidences.float()))
    for name in FIELDS:
        assert torch.equal(getattr(halves, name), getattr(singles, name)), name
    assert calibration_error(measure(confidences[:4], correct[:4])).item() == pytest.approx(0.15, abs=0.002)


def test_statistics_over_other_bins_do_not_add():
    two, three = (equal_width_statistics(torch.tensor([0.5]), torch.tensor([True]), m) for m in (2, 3))
    with pytest.raises(InvalidValueError, match=r"same bins only, got \(2,\) and \(3,\)"):
        two + three


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_error_without_samples_is_nan(norm):
    assert (
        calibration_error(BinStatistics.zeros(4, 15, device=torch.device("cpu")), norm).isnan().tolist() == [True] * 4
    )


def test_error_of_known_gaps():
    statistics = equal_width_statistics(torch.tensor([0.25, 0.25, 0.25, 0.75]), torch.tensor([0, 1, 1, 0]).bool(), 2)
    gap = 2 / 3 - 0.25
    assert calibration_error(statistics).item() == pytest.approx(0.75 * gap + 0.25 * 0.75, abs=1e-12)
    expected = (0.75 * gap**2 + 0.25 * 0.75**2) ** 0.5
    assert calibration_error(statistics, "l2").item() == pytest.approx(expected, abs=1e-12)
    assert calibration_error(statistics, "max").item() == 0.75


def test_bad_arguments():
    with pytest.raises(InvalidValueError, match=r"`num_bins` must be an integer >= 1, got 0\."):
        equal_width_statistics(torch.tensor([0.5]), torch.tensor([True]), 0)
    with pytest.raises(InvalidTypeError, match=r"`num_bins` must be an integer >= 1, got 1\.5\."):
        equal_width_statistics(torch.tensor([0.5]), torch.tensor([True]), 1.5)
    with pytest.raises(InvalidValueError, match=r"`norm` must be one of 'l1', 'l2', 'max', got 'L1'\."):
        calibration_error(equal_width_statistics(torch.tensor([0.5]), torch.tensor([True])), "L1")


def test_shared_edges_are_never_written_to():
    for dtype in (torch.float32, torch.float64):
        statistics = equal_width_statistics(torch.tensor([0.3, 1.0], dtype=dtype), torch.tensor([True, False]), 7)
    assert statistics.edges.tolist() == [m / 7 for m in range(8)]


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


@pytest.mark.parametrize(("n", "num_bins", "spread"), [(1500, 15, 0.8), (5000, 10, 0.8), (400, 1, 0.0)])
def test_floor_is_the_mean_error_of_calibrated_models(n, num_bins, spread):
    generator = torch.Generator().manual_seed(0)
    confidences = 0.1 + spread * torch.rand(n, generator=generator)
    errors, floors = [], []
    for _ in range(400):
        correct = torch.bernoulli(confidences, generator=generator).bool()
        statistics = equal_width_statistics(confidences, correct, num_bins)
        errors.append(calibration_error(statistics))
        floors.append(noise_floor(statistics))
    assert len(set(floors[0].reshape(1).tolist() + floors[-1].reshape(1).tolist())) == 1  # correctness plays no part
    # Within 6 %: one bin's error alone scatters by 76 % of its mean, a twentieth of that over 400 draws.
    assert floors[0].item() == pytest.approx(torch.stack(errors).mean().item(), rel=0.06 if num_bins > 1 else 0.12)


def test_known_floor():
    statistics = equal_width_statistics(torch.full((100,), 0.5), torch.arange(100) < 90)
    assert noise_floor(statistics).item() == pytest.approx((2 * 0.25 / (torch.pi * 100)) ** 0.5, abs=1e-12)


def test_certain_predictions_have_no_floor():
    statistics = equal_width_statistics(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([False, True, True]))
    assert noise_floor(statistics).item() == 0.0


@pytest.mark.parametrize(("n", "is_warned"), [(1, True), (149, True), (150, False), (10_000, False)])
def test_warning_below_ten_samples_a_bin(n, is_warned):
    message = sample_size_warning(equal_width_statistics(torch.full((n,), 0.5), torch.arange(n) % 2 == 0, 15))
    if is_warned:
        floor = (0.5 / (torch.pi * n)) ** 0.5
        assert message.startswith(f"{n} samples are too few for 15 bins") and message.endswith(f"{floor:.3f}.")
    else:
        assert message is None


CHUNKS = [1, 7, 64, inputs_module.CHUNK_ELEMENTS]


def tied_scores(num_classes, seed=0):
    """Rows with every kind of tie: all equal, the top shared by some, the bottom shared by some, none."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (200, num_classes), generator=generator).float()
    scores[:20] = 1.0
    scores[-20:] = torch.randn(20, num_classes, generator=generator)
    return scores, torch.randint(num_classes, (200,), generator=generator)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("num_classes", [2, 3, 4, 10])
def test_top_ties_go_to_the_first_class(monkeypatch, num_classes, chunk):
    monkeypatch.setattr(inputs_module, "CHUNK_ELEMENTS", chunk)
    scores, targets = tied_scores(num_classes)
    expected = scores.argmax(1) == targets
    assert expected.any() and (~expected).any()
    probs = (scores + 1.0).exp()
    probs = probs / probs.sum(1, keepdim=True)
    for keywords in ({"logits": scores}, {"probs": probs}, {"probs": probs.half()}):
        winners = next(iter(keywords.values())).float().argmax(1)
        confidences, correct = confidence_and_correctness(read_inputs(**keywords, targets=targets))
        assert torch.equal(correct, winners == targets)
        top = keywords.get("probs", torch.softmax(scores, 1)).amax(1).float()
        torch.testing.assert_close(confidences, top, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("level", [0.0, 0.3, -3.3, 100.3, 1000.3, 10_000.3])
def test_rows_of_equal_logits_predict_class_0(level, dtype):
    for num_classes in (2, 3, 4, 10):
        logits = torch.full((num_classes, num_classes), level, dtype=dtype)
        confidences, correct = confidence_and_correctness(read_inputs(logits=logits, targets=torch.arange(num_classes)))
        assert correct.tolist() == [True] + [False] * (num_classes - 1)
        expected = torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
        torch.testing.assert_close(confidences.double(), expected, rtol=1e-6, atol=0.0)


def test_rows_of_equal_probs_predict_class_0():
    for num_classes in (2, 3, 7):
        probs = torch.full((num_classes, num_classes), 1 / num_classes)
        _, correct = confidence_and_correctness(read_inputs(probs=probs, targets=torch.arange(num_classes)))
        assert correct.tolist() == [True] + [False] * (num_classes - 1)


def test_events_are_measured_as_yes():
    confidences, correct = confidence_and_correctness(
        read_inputs(logits=torch.tensor([-2.0, 0.0, 2.0]), targets=torch.tensor([1, 0, 1]))
    )
    torch.testing.assert_close(confidences, torch.sigmoid(torch.tensor([-2.0, 0.0, 2.0])))
    assert correct.tolist() == [True, False, True]
