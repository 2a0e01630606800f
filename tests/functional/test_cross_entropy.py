"""Cross-entropy against torch's, soft labels against their formula."""

import itertools

import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import cross_entropy, soft_cross_entropy


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weights", [None, [1.0, 1.0, 1.0, 1.0, 1.0], [0.1, 2.0, 0.0, 3.5, 1.0]])
def test_equals_torch(reduction, weights):
    logits, targets = samples.multiclass(60, 5)
    weights = None if weights is None else torch.tensor(weights)
    expected = torch.nn.functional.cross_entropy(logits, targets, weight=weights, reduction=reduction)
    ours = cross_entropy(logits=logits, targets=targets, class_weights=weights, reduction=reduction)
    torch.testing.assert_close(ours, expected)
    double = cross_entropy(logits=logits.double(), targets=targets, class_weights=weights, reduction=reduction)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_one_logit_equals_torch_binary(reduction):
    logits, targets = samples.events((50,))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.float(), reduction=reduction)
    torch.testing.assert_close(cross_entropy(logits=logits, targets=targets, reduction=reduction), expected)


def test_soft_labels_need_not_sum_to_1():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    labels = torch.rand(20, 4, generator=generator, dtype=torch.float64) * 2.0
    assert (labels.sum(1) - 1.0).abs().min() > 1e-3
    losses = [
        -sum(s * (z - row.exp().sum().log()) for s, z in zip(weights, row)) for weights, row in zip(labels, logits)
    ]
    expected = torch.stack(losses)
    torch.testing.assert_close(soft_cross_entropy(logits=logits, targets=labels, reduction="none"), expected)
    torch.testing.assert_close(soft_cross_entropy(logits=logits, targets=labels), expected.mean())
    torch.testing.assert_close(soft_cross_entropy(logits=logits, targets=labels, reduction="sum"), expected.sum())


def test_soft_labels_gradient_is_the_closed_form():
    """``sum(s) * softmax(z) - s``, which the meta step relies on; and -log p towards the labels."""
    logits, _ = samples.multiclass(10, 4, dtype=torch.float64)
    labels = torch.rand(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_(), labels.requires_grad_()
    value = soft_cross_entropy(logits=logits, targets=labels, reduction="sum")
    to_logits, to_labels = torch.autograd.grad(value, (logits, labels))
    torch.testing.assert_close(to_logits, labels.sum(1, keepdim=True) * torch.softmax(logits, 1) - labels)
    torch.testing.assert_close(to_labels, -torch.log_softmax(logits, 1))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_soft_labels_with_class_weights_equal_torch(reduction):
    """The mean is over samples, whatever the weights: as torch does it for probabilities, not for classes."""
    logits, _ = samples.multiclass(30, 4)
    labels = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([0.1, 2.0, 0.0, 3.5])
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=weights, reduction=reduction)
    found = soft_cross_entropy(logits=logits, targets=labels, class_weights=weights, reduction=reduction)
    torch.testing.assert_close(found, expected)
    double = soft_cross_entropy(
        logits=logits.double(), targets=labels.double(), class_weights=weights, reduction=reduction
    )
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected)


def test_class_weights_of_a_wrong_shape():
    for function, targets in ((cross_entropy, torch.tensor([0])), (soft_cross_entropy, torch.zeros(1, 2))):
        with pytest.raises(InvalidValueError, match=r"must have shape \(2,\), one per class, got \(3,\)"):
            function(logits=torch.zeros(1, 2), targets=targets, class_weights=torch.ones(3))


def test_soft_labels_that_are_hard():
    logits, targets = samples.multiclass(30, 5)
    hard = torch.nn.functional.one_hot(targets, 5).float()
    torch.testing.assert_close(
        soft_cross_entropy(logits=logits, targets=hard), cross_entropy(logits=logits, targets=targets)
    )


def test_soft_labels_at_certain_logits_are_finite():
    for sign, dtype in itertools.product((1, -1), samples.DTYPES):
        logits = torch.tensor([[1e4 * sign, 0.0]], dtype=dtype, requires_grad=True)
        value = soft_cross_entropy(logits=logits, targets=torch.tensor([[0.9, 0.1]]))
        value.backward()
        assert value.item() == pytest.approx(1e3 if sign == 1 else 9e3, rel=1e-2)
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("shape", [(3,), (3, 3), (2, 2)])
def test_soft_labels_of_another_shape(shape):
    with pytest.raises(InvalidValueError, match=r"`targets` must have the shape of the logits, \(3, 2\), got"):
        soft_cross_entropy(logits=torch.zeros(3, 2), targets=torch.zeros(shape))
