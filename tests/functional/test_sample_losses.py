"""Losses of single samples against torch and loops, and how they are reduced."""

import itertools

import numpy as np
import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import (
    acls_loss,
    cross_entropy,
    dual_focal_loss,
    flsd_loss,
    focal_loss,
    label_smoothing_loss,
    logit_norm_loss,
    mbls_loss,
    smooth_labels,
    soft_cross_entropy,
)
from metacal.functional.sample_losses import reduce_losses


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


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("strength", [0.0, 0.05, 0.5, 1.0, 0, 1])
def test_loss_equals_torch(strength, reduction):
    for dtype in (torch.float32, torch.float64):
        logits, targets = samples.multiclass(60, 5, dtype=dtype)
        expected = torch.nn.functional.cross_entropy(
            logits, targets, label_smoothing=float(strength), reduction=reduction
        )
        ours = label_smoothing_loss(logits=logits, targets=targets, strength=strength, reduction=reduction)
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("strength", [0, 1, 0.0, 0.1, 1.0, torch.tensor(0.1), torch.tensor([[0.1], [0.3]])])
def test_labels(strength):
    labels = smooth_labels(targets=torch.tensor([2, 0]), num_classes=4, strength=strength)
    s = torch.as_tensor(strength, dtype=torch.float32).expand(2, 1)
    expected = torch.tensor([[0.0, 0, 1, 0], [1, 0, 0, 0]]) * (1 - s) + s / 4
    torch.testing.assert_close(labels, expected)
    torch.testing.assert_close(labels.sum(1), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_from_any_integers(dtype):
    labels = smooth_labels(targets=torch.tensor([1], dtype=dtype), num_classes=2, strength=0.5)
    assert labels.tolist() == [[0.25, 0.75]]


def test_strength_can_be_learned():
    strength = torch.tensor(0.2, requires_grad=True)
    smooth_labels(targets=torch.tensor([1]), num_classes=4, strength=strength)[0, 1].backward()
    assert strength.grad.item() == pytest.approx(-0.75)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), 2])
def test_strength_outside_its_domain(strength):
    message = rf"`strength` must be in \[0, 1\], got {strength}\."
    with pytest.raises(InvalidValueError, match=message):
        smooth_labels(targets=torch.tensor([1]), num_classes=2, strength=strength)
    with pytest.raises(InvalidValueError, match=message):
        label_smoothing_loss(logits=torch.zeros(1, 2), targets=torch.tensor([1]), strength=strength)


def true_probs(logits, targets):
    return torch.tensor(oracles.softmax(logits.numpy())[range(len(targets)), targets.numpy()])


@pytest.mark.parametrize("gamma", [0, 0.5, 1.0, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_formula(gamma, dtype):
    logits, targets = samples.multiclass(50, 6, dtype=dtype)
    p = true_probs(logits, targets)
    expected = -((1 - p) ** gamma) * p.log()
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}
    for given in (gamma, torch.tensor(float(gamma)), torch.full((50,), float(gamma))):
        ours = focal_loss(logits=logits, targets=targets, gamma=given, reduction="none")
        torch.testing.assert_close(ours.double(), expected, **tolerance)
        mean = focal_loss(logits=logits, targets=targets, gamma=given)
        total = focal_loss(logits=logits, targets=targets, gamma=given, reduction="sum")
        torch.testing.assert_close(mean.double(), expected.mean(), **tolerance)
        torch.testing.assert_close(total.double(), expected.sum(), rtol=1e-5, atol=0.0)


def test_gamma_0_is_cross_entropy():
    logits, targets = samples.multiclass()
    torch.testing.assert_close(
        focal_loss(logits=logits, targets=targets, gamma=0.0), cross_entropy(logits=logits, targets=targets)
    )


@pytest.mark.parametrize("shape", [(), (20,)])
def test_gamma_can_be_learned(shape):
    logits, targets = samples.multiclass(20, 4, dtype=torch.float64)
    gamma = torch.full(shape, 2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda g, x: focal_loss(logits=x, targets=targets, gamma=g), (gamma, logits.requires_grad_())
    )
    certain = torch.tensor([[1e4, 0.0]], requires_grad=True)
    gamma = torch.tensor(0.5, requires_grad=True)
    focal_loss(logits=certain, targets=torch.tensor([0]), gamma=gamma).backward()
    assert torch.isfinite(gamma.grad) and torch.isfinite(certain.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_flsd_switches_at_a_fifth(dtype):
    logits, targets = samples.multiclass(200, 5, dtype=dtype)
    p = true_probs(logits, targets)
    low = p < 0.2
    assert low.any() and (~low).any()
    expected = -torch.where(low, (1 - p) ** 5, (1 - p) ** 3) * p.log()
    ours = flsd_loss(logits=logits, targets=targets, reduction="none")
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-6)
    assert flsd_loss(logits=logits, targets=targets).item() == pytest.approx(ours.mean().item())
    assert flsd_loss(logits=logits, targets=targets, reduction="sum").item() == pytest.approx(ours.sum().item())


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 2.0), ("sum", 6.0), ("none", [1.0, 2.0, 3.0])])
def test_reductions(reduction, expected):
    assert reduce_losses(torch.tensor([1.0, 2.0, 3.0]), reduction).tolist() == expected


@pytest.mark.parametrize("reduction", ["avg", None, True])
def test_unknown_reduction(reduction):
    with pytest.raises(InvalidValueError, match=f"`reduction` must be one of 'mean', 'sum', 'none', got {reduction!r}"):
        reduce_losses(torch.zeros(1), reduction)


def softmax(logits):
    exp = np.exp(logits - logits.max())
    return exp / exp.sum()


@pytest.mark.parametrize("gamma", [0.0, 1.0, 5.0])
def test_dual_focal_equals_a_loop(gamma):
    logits, targets = samples.multiclass(60, 5, dtype=torch.float64)
    losses = []
    for row, target in zip(logits.numpy(), targets.numpy()):
        probs = softmax(row)
        below = [p for p in probs if p < probs[target]]
        losses.append(-((1 - probs[target] + max(below, default=0.0)) ** gamma) * np.log(probs[target]))
    found = dual_focal_loss(logits=logits, targets=targets, gamma=gamma, reduction="none")
    np.testing.assert_allclose(found, losses, rtol=1e-9, atol=1e-15)
    assert len({bool(min(softmax(row)) == softmax(row)[t]) for row, t in zip(logits.numpy(), targets)}) == 2


@pytest.mark.parametrize(("margin", "weight"), [(10.0, 0.1), (0.0, 1.0), (1.5, 0.3)])
def test_margins_equal_loops(margin, weight):
    logits, targets = samples.multiclass(60, 5, dtype=torch.float64)
    logits = 3.0 * logits
    hinges, squares = [], []
    for row, target in zip(logits.numpy(), targets.numpy()):
        plain = -np.log(softmax(row)[target])
        hinges.append(plain + weight * sum(max(0.0, row.max() - z - margin) for z in row) / 5)
        others = [z for place, z in enumerate(row) if place != row.argmax()]
        low = sum(max(0.0, row.max() - z - margin) ** 2 for z in others) / 4
        squares.append(plain + weight * (2.0 * max(0.0, row.max() - margin) ** 2 + 0.7 * low))
    options = {"logits": logits, "targets": targets, "margin": margin, "weight": weight, "reduction": "none"}
    np.testing.assert_allclose(mbls_loss(**options), hinges, rtol=1e-9)
    np.testing.assert_allclose(acls_loss(**options, top=2.0, rest=0.7), squares, rtol=1e-9)


def test_the_lower_hinge_of_acls_pushes_the_low_logits_alone():
    logits = torch.tensor([[4.0, 1.0, -3.0]], dtype=torch.float64, requires_grad=True)
    options = {"logits": logits, "targets": torch.tensor([0]), "margin": 5.0}
    value = acls_loss(**options, weight=1.0, top=0.0, rest=1.0) - cross_entropy(
        logits=logits, targets=torch.tensor([0])
    )
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx((7 - 5) ** 2 / 2)
    np.testing.assert_allclose(gradient, [[0.0, 0.0, -2.0]], atol=1e-12)


def test_logit_norm_equals_a_loop_and_does_not_see_the_length():
    logits, targets = samples.multiclass(60, 5, dtype=torch.float64)
    losses = [
        -np.log(softmax(row / np.linalg.norm(row) / 0.04)[target])
        for row, target in zip(logits.numpy(), targets.numpy())
    ]
    for factor in (1.0, 1e-2, 1e200):
        found = logit_norm_loss(logits=factor * logits, targets=targets, reduction="none")
        np.testing.assert_allclose(found, losses, rtol=1e-9, atol=1e-15)
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(logit_norm_loss(logits=leaf, targets=targets), leaf)
    np.testing.assert_allclose((gradient * logits).sum(1), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (dual_focal_loss, {"gamma": -1.0}, "`gamma` must be >= 0, got -1"),
        (mbls_loss, {"margin": -1.0}, "`margin` must be >= 0, got -1"),
        (acls_loss, {"rest": -0.1}, "`rest` must be >= 0, got -0.1"),
        (logit_norm_loss, {"temperature": 0.0}, "`temperature` must be a number > 0, got 0"),
    ],
)
def test_options_out_of_range(function, arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        function(logits=torch.zeros(2, 3), targets=torch.tensor([0, 1]), **arguments)
