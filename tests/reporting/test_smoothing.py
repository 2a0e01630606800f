"""What a run has learned: matrix, superclasses, L2, against loops and by hand."""

import math

import pytest
import torch
from tests.reporting.samples import some_run

from metacal.reporting import smoothing as module
from metacal.reporting.smoothing import L2_BINS, prepare_l2, prepare_smoothing, prepare_superclasses

NAMES = ("a", "b", "c")


def test_matrix_puts_superclasses_side_by_side_and_drops_the_diagonal():
    values = torch.tensor([[9.0, 0.1, 0.2], [0.3, 9.0, 0.4], [0.5, 0.6, 9.0]])
    matrix = prepare_smoothing(values, NAMES, (1, 0, 1))
    assert matrix.class_names == ["b", "a", "c"]
    expected = [[0.0, 0.3, 0.4], [0.1, 0.0, 0.2], [0.6, 0.5, 0.0]]
    torch.testing.assert_close(torch.tensor(matrix.values), torch.tensor(expected))
    assert matrix.highest == pytest.approx(0.6) and values[0, 0] == 9.0
    assert prepare_smoothing(values, NAMES).class_names == ["a", "b", "c"]


def test_of_many_classes_the_busiest_are_shown(monkeypatch):
    monkeypatch.setattr(module, "MOST_CLASSES", 2)
    values = torch.tensor([[0.0, 0.1, 0.0], [0.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    matrix = prepare_smoothing(values, NAMES)
    assert matrix.class_names == ["b", "c"] and matrix.num_classes == 3 and len(matrix.values) == 2


def test_superclasses_against_a_loop():
    run = some_run()
    prepared = prepare_superclasses(run.smoothing, run.class_names, run.superclasses)
    pairs = [(i, j) for i in range(10) for j in range(10) if i != j]
    for same, value in ((True, prepared.within), (False, prepared.across)):
        shares = [run.smoothing[i, j].item() for i, j in pairs if (run.superclasses[i] == run.superclasses[j]) == same]
        assert value == pytest.approx(sum(shares) / len(shares))
    assert prepared.rows[0].classes == ["airplane", "automobile", "ship", "truck"]
    shares = [run.smoothing[i, j].item() for i in (0, 1, 8, 9) for j in (0, 1, 8, 9) if i != j]
    assert prepared.rows[0].within == pytest.approx(sum(shares) / 12)
    assert prepared.within > 3 * prepared.across


def test_superclasses_without_pairs():
    smoothing = torch.full((3, 3), 0.1)
    alone = prepare_superclasses(smoothing, NAMES, (0, 1, 2))
    assert alone.within is None and alone.across == pytest.approx(0.1)
    one = prepare_superclasses(smoothing, NAMES, (4, 4, 4))
    assert one.across is None and one.rows[0].within == pytest.approx(0.1)


def test_l2_histograms():
    values = torch.tensor([[-1.0, 0.0], [1.0, math.nan], [1.0, 0.5]])
    (histogram,) = prepare_l2({"weight": values, "empty": torch.tensor([math.nan])})
    assert histogram.name == "weight" and sum(histogram.counts) == 5 and len(histogram.counts) == L2_BINS
    assert (histogram.edges[0], histogram.edges[-1]) == (-1.0, 1.0)
    assert histogram.counts[0] == 1 and histogram.counts[-1] == 2
    assert histogram.mean == pytest.approx(0.3) and histogram.negative == pytest.approx(0.2)
    assert prepare_l2({}) == []


@pytest.mark.parametrize("value", [0.0, 3.0, -2e-5])
def test_l2_of_one_value_only(value):
    (histogram,) = prepare_l2({"bias": torch.full((4,), value)})
    assert sum(histogram.counts) == 4 and histogram.edges[0] < value < histogram.edges[-1]
