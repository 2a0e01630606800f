"""What a report shows of one training run: what does not fit is refused, numbers are those of loops and by hand."""

import math

import pytest
import torch
from tests.reporting.samples import some_run

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.reporting import RunView
from metacal.reporting import runs as module
from metacal.reporting.runs import (
    L2_BINS,
    learning_rate_drops,
    prepare_curves,
    prepare_l2,
    prepare_smoothing,
    prepare_strengths,
    prepare_superclasses,
)

NAMES = ("a", "b", "c")


def test_a_run_may_record_nothing():
    run = RunView("r", "m", "d", NAMES, {})
    assert (run.num_epochs, run.num_classes, run.strengths) == (0, 3, None)


def test_counts():
    run = some_run(num_epochs=7)
    assert (run.num_epochs, run.num_classes) == (7, 10)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(epochs={"lr": [1.0], "val_ece": [1.0, 2.0]}), r"`epochs` must have columns of one length, got .*'lr': 1"),
        (
            dict(strengths=torch.zeros(4, 2)),
            r"`strengths` must have shape \(epochs, 3\) or \(epochs, 1\), got \(4, 2\)",
        ),
        (dict(strengths=torch.zeros(3)), r"`strengths` must have shape .*, got \(3,\)"),
        (dict(smoothing=torch.zeros(3, 2)), r"`smoothing` must have shape \(3, 3\), got \(3, 2\)"),
        (dict(superclasses=(0, 1)), r"`superclasses` must give one superclass to each of 3 classes, got 2"),
    ],
)
def test_what_does_not_fit_is_named(wrong, message):
    with pytest.raises(InvalidValueError, match=message):
        RunView(**{"name": "r", "method": "m", "dataset": "d", "class_names": NAMES, "epochs": {}, **wrong})


def test_lists_are_not_tensors():
    with pytest.raises(InvalidTypeError, match="`smoothing` must be a tensor or None, got list"):
        RunView("r", "m", "d", NAMES, {}, smoothing=[[0.0]])


def view(epochs, **more):
    return RunView("r", "m", "d", ("a", "b"), epochs, **more)


def test_curves_hold_the_columns():
    run = some_run()
    curves = prepare_curves(run)
    assert curves.epochs == list(range(1, 61)) and curves.drops == [31, 46]
    assert [line.name for line in curves.error] == ["training", "validation"]
    assert curves.ece[1].values == run.epochs["val_ece"] and curves.loss[0].values == run.epochs["train_loss"]


def test_what_was_not_measured_is_a_gap():
    curves = prepare_curves(view({"val_ece": [math.nan, 0.2, math.inf], "val_error": [math.nan] * 3}))
    assert curves.ece[0].values == [None, 0.2, None] and curves.error == []


@pytest.mark.parametrize("epochs", [{}, {"lr": [0.1, 0.1]}, {"val_ece": [math.nan]}])
def test_no_curves(epochs):
    assert prepare_curves(view(epochs)) is None


@pytest.mark.parametrize(
    ("rates", "drops"),
    [
        ([0.1, 0.1, 0.01, 0.01, 0.001], [3, 5]),
        ([0.1, 0.05, 0.05], [2]),
        ([0.1 * 0.97**epoch for epoch in range(50)], []),
        ([0.05 * (1 + math.cos(math.pi * epoch / 50)) for epoch in range(45)], []),
        ([0.01, 0.1], []),
        ([], []),
    ],
)
def test_drops_are_told_from_decay(rates, drops):
    assert learning_rate_drops(view({"lr": rates})) == drops


def test_strengths():
    strengths = prepare_strengths(view({"lr": [1.0, 0.1]}, strengths=torch.tensor([[0.0, 0.2], [0.1, 0.5]])))
    assert [(line.name, line.values) for line in strengths.classes][1][0] == "b"
    assert strengths.classes[1].values == pytest.approx([0.2, 0.5])
    assert strengths.mean == pytest.approx([0.1, 0.3]) and strengths.highest == pytest.approx([0.2, 0.5])
    assert strengths.drops == [2] and strengths.num_classes == 2
    shared = prepare_strengths(view({}, strengths=torch.tensor([[0.1], [0.2]])))
    assert [line.name for line in shared.classes] == ["all classes"]
    assert prepare_strengths(view({})) is None and prepare_strengths(view({}, strengths=torch.zeros(0, 2))) is None


def test_of_many_classes_some_are_drawn_from_weakest_to_strongest(monkeypatch):
    monkeypatch.setattr(module, "MOST_LINES", 3)
    run = some_run(num_epochs=5)
    strengths = prepare_strengths(run)
    last = {line.name: line.values[-1] for line in strengths.classes}
    assert len(last) == 3 and strengths.num_classes == 10
    assert max(last.values()) == strengths.highest[-1] and min(last.values()) == strengths.lowest[-1]
    assert strengths.mean[-1] == pytest.approx(run.strengths[-1].mean().item())


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
