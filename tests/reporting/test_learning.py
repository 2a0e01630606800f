"""What a run looked like over time, from its columns."""

import math

import pytest
import torch
from tests.reporting.samples import some_run

from metacal.reporting import RunView
from metacal.reporting import learning as module
from metacal.reporting.learning import learning_rate_drops, prepare_agreement, prepare_curves, prepare_strengths


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
    assert prepare_curves(view(epochs)) is None and prepare_agreement(view(epochs)) is None


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


def test_agreement_pairs_what_was_measured_together():
    agreement = prepare_agreement(view({"val_ece": [0.1, math.nan, 0.3, 0.2], "val_dece": [0.2, 0.9, 0.6, 0.4]}))
    assert (agreement.part, agreement.epochs) == ("validation", [1, 3, 4])
    assert (agreement.ece, agreement.dece) == ([0.1, 0.3, 0.2], [0.2, 0.6, 0.4])
    assert agreement.correlation == pytest.approx(1.0)
    assert prepare_agreement(view({"val_ece": [0.1], "train_dece": [0.1]})) is None
    assert prepare_agreement(view({"train_ece": [0.1], "train_dece": [0.1]})).part == "training"


@pytest.mark.parametrize("dece", [[0.1, 0.2], [0.3, 0.3, 0.3]])
def test_no_correlation_without_spread(dece):
    assert prepare_agreement(view({"val_ece": dece, "val_dece": dece})).correlation is None


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
