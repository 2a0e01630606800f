"""Where the labels of a batch are, as Lightning's steps get it."""

import pytest
import torch

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations.lightning.held_out import labels_of

Y = torch.tensor([1, 0])
X = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("batch", "targets"),
    [
        ((X, Y), None),
        ([X, Y], None),
        ({"x": X, "labels": Y}, None),
        ({"x": X, "target": Y}, None),
        ((X, X, Y), 2),
        ({"x": X, "kind": Y}, "kind"),
        ({"deep": {"y": Y}}, lambda batch: batch["deep"]["y"]),
    ],
)
def test_labels_are_found(batch, targets):
    assert labels_of(batch, targets) is Y


@pytest.mark.parametrize(
    ("batch", "targets", "message"),
    [
        ((X, X, Y), None, "must say where the labels.*a tuple of 3"),
        ({"x": X, "kind": Y}, None, "its keys are 'x', 'kind'"),
        ({"x": X}, "kind", "must be a key of the batches, got 'kind'"),
        (X, None, "a batch is a Tensor"),
    ],
)
def test_labels_that_are_not_found(batch, targets, message):
    with pytest.raises(InvalidValueError, match=message):
        labels_of(batch, targets)


def test_labels_that_are_no_tensor():
    with pytest.raises(InvalidTypeError, match="tensor of class labels, got list"):
        labels_of((X, [1, 0]))
