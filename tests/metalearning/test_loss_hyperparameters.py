"""GammaNet: its exponents and the loss that they give, against NumPy."""

import numpy as np
import pytest
import torch
from tests.metalearning.problems import K, randomised

from metacal.errors import InvalidValueError
from metacal.losses import CrossEntropyLoss
from metacal.metalearning import GammaNet, InnerLoss

LOGITS = torch.randn(20, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(20) % K


def by_hand(net, logits):
    known = np.maximum(logits - np.log(np.exp(logits).sum(1, keepdims=True)), -10.0)
    weight, bias, out, offset = (parameter.detach().numpy() for parameter in net.parameters())
    return 10.0 / (1.0 + np.exp(-(np.tanh(known @ weight.T + bias) @ out + offset)))


def test_gammas_are_those_of_the_network():
    net = randomised(GammaNet(K, hidden=5), -1.0, 1.0)
    np.testing.assert_allclose(net.gammas(LOGITS).detach(), by_hand(net, LOGITS.numpy()), rtol=1e-9)
    assert net.gammas(LOGITS).std() > 0.1


def test_it_is_the_focal_loss_with_these_gammas():
    net = randomised(GammaNet(K), -1.0, 1.0)
    found = net(InnerLoss.plain(LABELS, K)).value(CrossEntropyLoss(reduction="none"), LOGITS, {})
    probs = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum(1, keepdims=True)
    own = probs[np.arange(20), LABELS.numpy()]
    assert found.item() == pytest.approx(np.sum(-((1 - own) ** by_hand(net, LOGITS.numpy())) * np.log(own)), rel=1e-9)
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(found, tuple(net.parameters())))


@pytest.mark.parametrize("size", [0.0, 1e4])
def test_gradients_are_finite_at_extremes(size):
    net = randomised(GammaNet(K), -1.0, 1.0)
    logits = (size * torch.eye(K, dtype=torch.float64)).requires_grad_()
    value = net(InnerLoss.plain(LABELS[:K], K)).value(CrossEntropyLoss(reduction="none"), logits, {})
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value, (logits, *net.parameters())))


def test_all_samples_start_with_the_same_gamma_and_random_numbers_are_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    net = GammaNet(K, start=2.0)
    assert torch.equal(torch.rand(1), expected)
    torch.testing.assert_close(net.gammas(LOGITS.float()), torch.full((20,), 2.0))
    assert {name: round(float(value), 5) for name, value in net.summary().items()} == {
        "gamma_unsure": 2.0,
        "gamma_certain": 2.0,
    }
    with pytest.raises(InvalidValueError, match=r"`start / most` must be .*, got 1.5"):
        GammaNet(K, start=15.0)
