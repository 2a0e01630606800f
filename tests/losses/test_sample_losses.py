"""Losses with something of their own: class weights of CrossEntropyLoss, exponents of AdaFocalLoss."""

import numpy as np
import pytest
import torch
from tests.functional import samples

from metacal import functional as F
from metacal.errors import InvalidValueError
from metacal.losses import AdaFocalLoss, CrossEntropyLoss, DECELoss, FocalLoss

LOGITS, TARGETS = samples.multiclass(40, 3)
WEIGHTS = torch.tensor([0.5, 2.0, 1.0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_are_those_of_torch(reduction):
    expected = torch.nn.CrossEntropyLoss(weight=WEIGHTS, reduction=reduction)(LOGITS, TARGETS)
    torch.testing.assert_close(CrossEntropyLoss(WEIGHTS, reduction)(LOGITS, TARGETS), expected)


def test_class_weights_may_be_a_list():
    assert torch.equal(CrossEntropyLoss([0.5, 2.0, 1.0])(LOGITS, TARGETS), CrossEntropyLoss(WEIGHTS)(LOGITS, TARGETS))


def test_class_weights_move_and_are_saved_within_a_sum():
    objective = CrossEntropyLoss(WEIGHTS) + 0.5 * DECELoss()
    assert list(objective.state_dict()) == ["losses.0.class_weights"]
    other = CrossEntropyLoss(torch.ones(3)) + 0.5 * DECELoss()
    other.load_state_dict(objective.state_dict())
    assert torch.equal(other(LOGITS, TARGETS), objective(LOGITS, TARGETS))
    other.to(torch.float64)
    assert other.losses[0].class_weights.dtype == torch.float64
    double = other(LOGITS.double(), TARGETS)
    assert double.dtype == torch.float64
    assert double.item() == pytest.approx(objective(LOGITS, TARGETS).item(), rel=1e-4)
    assert CrossEntropyLoss(WEIGHTS).to("meta").class_weights.device.type == "meta"


def test_without_class_weights_there_is_nothing_to_save():
    assert dict(CrossEntropyLoss().state_dict()) == {}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_float_targets_are_soft_labels(reduction):
    soft = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    expected = F.soft_cross_entropy(logits=LOGITS, targets=soft, reduction=reduction)
    assert torch.equal(CrossEntropyLoss(reduction=reduction)(LOGITS, soft), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_of_soft_labels_are_those_of_torch(reduction):
    soft = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.CrossEntropyLoss(weight=WEIGHTS, reduction=reduction)(LOGITS, soft)
    torch.testing.assert_close(CrossEntropyLoss(WEIGHTS, reduction)(LOGITS, soft), expected)


def adafocal_by_hand(gammas, probs, targets, *, rate=1.0, switch=0.2, lowest=-2.0, highest=20.0):
    """Edges and gammas after held-out predictions, one bin after the other."""
    top, right = probs.max(axis=1), probs.argmax(axis=1) == targets
    ordered, number = np.sort(top), len(gammas)
    edges = [ordered[m * len(top) // number] for m in range(1, number)]
    moved = []
    for m, gamma in enumerate(gammas):
        low, high = ([-np.inf, *edges][m], [*edges, np.inf][m])
        inside = (top >= low) & (top < high)
        if inside.any():
            gap = top[inside].mean() - right[inside].mean()
            gamma = gamma * np.exp(rate * gap) if gamma > 0 else gamma * np.exp(-rate * gap)
            if abs(gamma) < switch:
                gamma = -switch if gamma > 0 else switch
            gamma = min(max(gamma, lowest), highest)
        moved.append(gamma)
    return edges, moved


@pytest.mark.parametrize("n", [7, 300])
def test_adafocal_follows_held_out_calibration(n):
    """Over-confident predictions and then under-confident ones, so that exponents rise, fall and change their sign."""
    loss = AdaFocalLoss(num_bins=5, rate=6.0)
    gammas, signs = [1.0] * 5, set()
    for epoch, scale in enumerate([6.0] * 3 + [0.3] * 12 + [8.0] * 6):
        logits, targets = samples.multiclass(n, 3, seed=epoch, dtype=torch.float64)
        loss.observe(scale * logits, targets)
        edges, gammas = adafocal_by_hand(gammas, (scale * logits).softmax(1).numpy(), targets.numpy(), rate=6.0)
        np.testing.assert_allclose(loss.gammas, gammas, rtol=1e-9)
        np.testing.assert_allclose(loss.edges, edges, rtol=1e-9)
        signs |= set(np.sign(gammas))
    assert signs == {1.0, -1.0}
    logits, targets = samples.multiclass(40, 3, seed=99, dtype=torch.float64)
    losses = []
    for probs, target in zip(logits.softmax(1).numpy(), targets.numpy()):
        gamma = gammas[sum(probs[target] >= edge for edge in edges)]
        base = 1 - probs[target] if gamma > 0 else 1 + probs[target]
        losses.append(-(base ** abs(gamma)) * np.log(probs[target]))
    assert loss(logits, targets).item() == pytest.approx(np.mean(losses), rel=1e-9)
    loss.reduction = "none"
    np.testing.assert_allclose(loss(logits, targets), losses, rtol=1e-9)


def test_adafocal_starts_as_focal_loss_and_keeps_its_bounds():
    assert torch.equal(AdaFocalLoss()(LOGITS, TARGETS), FocalLoss(gamma=1.0)(LOGITS, TARGETS))
    loss = AdaFocalLoss(num_bins=1, rate=50.0)
    loss.observe(torch.tensor([[9.0, 0.0]] * 4), torch.tensor([1, 1, 1, 1]))
    assert loss.gammas.tolist() == [20.0]
    for _ in range(3):
        loss.observe(torch.tensor([[0.1, 0.0]] * 4), torch.tensor([0, 0, 0, 0]))
    assert loss.gammas.tolist() == [-2.0]


@pytest.mark.parametrize("gamma", [-2.0, -0.2, 0.2, 20.0])
@pytest.mark.parametrize("size", [0.0, 1e4])
def test_adafocal_has_finite_gradients(gamma, size):
    loss = AdaFocalLoss(num_bins=2)
    loss.gammas.fill_(gamma)
    logits = torch.tensor([[size, -size], [-size, size]], requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(logits, torch.tensor([0, 0])), logits)
    assert torch.isfinite(gradient).all()


def test_adafocal_is_saved_and_observes_within_a_sum():
    total = AdaFocalLoss() + 0.5 * DECELoss()
    total.observe(LOGITS, TARGETS)
    alone = AdaFocalLoss()
    alone.observe(LOGITS, TARGETS)
    assert torch.equal(total.losses[0].gammas, alone.gammas)
    assert not torch.equal(alone.gammas, AdaFocalLoss().gammas)
    other = AdaFocalLoss() + 0.5 * DECELoss()
    other.load_state_dict(total.state_dict())
    assert torch.equal(other(LOGITS, TARGETS), total(LOGITS, TARGETS))
    with pytest.raises(
        InvalidValueError, match=r"`lowest`, `switch`, `start` and `highest` must obey .* got -2.0, 0.2, 0.1"
    ):
        AdaFocalLoss(start=0.1)
