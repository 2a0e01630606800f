"""Where the labels of a batch are."""

import pytest
import torch

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.labels import labels_of, split_batch

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


def test_a_batch_is_split_into_input_and_labels():
    assert split_batch((X, Y)) == (X, Y)
    assert split_batch([X, Y]) == (X, Y)
    (first, second), labels = split_batch((X, X, Y))
    assert first is X and second is X and labels is Y
    inputs, labels = split_batch({"x": X, "mask": X, "labels": Y})
    assert list(inputs) == ["x", "mask"] and labels is Y


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, r"`meta` must give batches \(x, y\); a batch is a Tensor"),
        ((X,), r"`meta` must give batches \(x, y\); a batch is a tuple of 1"),
        ((X, [1, 0]), "`meta targets` must be a tensor of class labels, got list"),
        ({"x": X, "label": None}, "`meta targets` must be a tensor of class labels, got NoneType"),
        ({"x": X}, "`meta` must give batches with labels; its keys are 'x'"),
        ((X[:0], Y[:0]), "`meta targets` must hold at least one sample, got none"),
    ],
)
def test_a_batch_that_cannot_be_split(batch, message):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=message):
        split_batch(batch)
