"""`RunView` says what does not fit when it is made."""

import pytest
import torch
from tests.reporting.samples import some_run

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.reporting import RunView

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
