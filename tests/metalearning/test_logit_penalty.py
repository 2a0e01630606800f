"""The penalty on logits: its formula, how it follows the learning rate, and what is learned about it."""

import numpy as np
import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net, sgd

from metacal import InvalidValueError, LogitPenalty, MetaCalibrator, OuterStep
from metacal.metalearning import InnerLoss
from metacal.metalearning.hyperparameter import Phase

NEVER = OuterStep(every=float("inf"), dense_start=0)


def test_it_is_the_squared_norm_of_centred_logits_by_class():
    penalty = LogitPenalty(3, start=0.1, annealing=1.0).double()
    penalty.base.data.fill_(0.2)
    penalty.deviation.data = torch.tensor([0.0, -0.5, 0.5]).double()
    logits, labels = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0])
    inner = penalty(InnerLoss.plain(labels, 3, Phase(relative_lr=0.3, overfitting=0.5)))
    expected = []
    for row, label in zip(logits.numpy(), labels.tolist()):
        strength = 0.1 * np.exp(0.2 + [0.0, -0.5, 0.5][label]) * 0.3 * 0.5
        expected.append(strength * sum((value - row.mean()) ** 2 for value in row))
    np.testing.assert_allclose(inner.logit_penalty(logits).detach().numpy(), expected, rtol=1e-12)


def test_it_is_added_to_the_loss_and_ignores_a_constant_in_the_logits():
    net = make_net(norm=False, dropout=0.0)
    meta = calibrator(net, LogitPenalty(K, start=0.1), outer=NEVER)
    x, y = batch(12, 1)
    logits = net(x)
    expected = torch.nn.functional.cross_entropy(logits, y) + 0.1 * logits.var(1, correction=0).mean() * K
    torch.testing.assert_close(meta.step(x, y), expected)
    penalty = LogitPenalty(K)(InnerLoss.plain(y, K)).logit_penalty
    torch.testing.assert_close(penalty(logits + 7.0), penalty(logits), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("annealing", "factor"), [(0.0, 1.0), (1.0, 0.1), (2.0, 0.01)])
def test_it_follows_the_learning_rate_down(annealing, factor):
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.5)
    meta = calibrator(net, LogitPenalty(K, start=0.1, annealing=annealing), optimizer=optimizer, outer=NEVER)
    x, y = batch(12, 1)
    plain = torch.nn.functional.cross_entropy(net(x), y)
    high = meta.step(x, y) - plain
    optimizer.param_groups[0]["lr"] = 0.05
    torch.testing.assert_close(meta.step(x, y) - plain, factor * high, rtol=1e-3, atol=1e-6)


def test_warming_up_counts_as_high():
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.01)
    meta = calibrator(net, LogitPenalty(K), optimizer=optimizer, outer=NEVER)
    x, y = batch(12, 1)
    low = meta.step(x, y)
    optimizer.param_groups[0]["lr"] = 0.1
    torch.testing.assert_close(meta.step(x, y), low)


def test_the_highest_learning_rate_is_resumed():
    nets = [make_net(norm=False, dropout=0.0) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    x, y = batch(12, 1)
    first = calibrator(nets[0], LogitPenalty(K), optimizer=sgd(nets[0], lr=0.5), outer=NEVER)
    first.step(x, y)
    second = calibrator(nets[1], LogitPenalty(K), optimizer=sgd(nets[1], lr=0.05), outer=NEVER)
    second.load_state_dict(first.state_dict())
    first._task.optimizer.optimizers[0].param_groups[0]["lr"] = 0.05
    torch.testing.assert_close(second.step(x, y), first.step(x, y), rtol=0.0, atol=0.0)
    assert second._task.optimizer.relative_lr == pytest.approx(0.1)


@pytest.mark.parametrize("through", ["head", "model"])
def test_over_fitting_asks_for_more_of_it_and_noise_for_less(through):
    """Held-out labels that agree with the training batch want larger logits, ones that contradict it smaller ones."""
    net = make_net(norm=False, dropout=0.0)
    x, y = batch(32, 1)
    optimizer = sgd(net, lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    objective = torch.nn.CrossEntropyLoss()
    signs = []
    for labels in (y, (y + 1) % K):
        meta = MetaCalibrator(
            net, optimizer, [(x, labels)], LogitPenalty(K), through=through, outer=OuterStep(refine=False)
        )
        signs.append(float(meta.hypergradient(x, y, (x, labels))["base"]))
    assert objective(net(x), y) < 0.5
    assert signs[0] > 0.0
    assert signs[1] < 0.0


def test_what_is_learned_decays_back_to_the_start():
    meta = calibrator(hyperparameters=LogitPenalty(K, decay=0.5), every=1)
    meta.hyperparameters.base.data.fill_(2.0)
    meta.step(*batch(12, 1))
    assert float(meta.hyperparameters.base) == pytest.approx(1.0, abs=0.02)


def test_its_export_has_the_strengths():
    found = LogitPenalty(3, start=0.1).export()
    assert found == {"base": 0.0, "deviation": [0.0] * 3, "strength": pytest.approx([0.1] * 3)}


@pytest.mark.parametrize("name", ["start", "rate", "share", "decay", "annealing"])
def test_settings_outside_their_domain_are_refused(name):
    with pytest.raises(InvalidValueError, match=f"`{name}` must be"):
        LogitPenalty(3, **{name: -1.0})
