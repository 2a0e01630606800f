"""Focal losses: against their formula, with numbers and tensors for gamma, and FLSD's switch."""

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import cross_entropy, flsd_loss, focal_loss


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
