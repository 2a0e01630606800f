"""The penalty on logits: its formula, how it follows the training, and what is learned about it."""

import math

import numpy as np
import pytest
import torch
from tests.metalearning.models import K, batch, both_ways, calibrator, make_net, sgd
from torch.nn.functional import cross_entropy

from metacal import InvalidValueError, LogitPenalty
from metacal.metalearning import InnerLoss
from metacal.metalearning.hyperparameter import Phase
from metacal.metalearning.meta_task import Overfitting


def without_meta_steps(net, penalty, optimizer=None):
    """A calibrator of a model that over-fits completely, whose penalty is not learned."""
    meta = calibrator(net, penalty, optimizer=optimizer, every=math.inf)
    meta._task.overfitting.losses = torch.tensor([0.0, 1.0])
    return meta


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


def test_it_is_added_to_the_loss():
    net = make_net(norm=False, dropout=0.0)
    x, y = batch(12, 1)
    logits = net(x)
    expected = cross_entropy(logits, y) + 0.1 * K * logits.var(1, correction=0).mean()
    torch.testing.assert_close(without_meta_steps(net, LogitPenalty(K, start=0.1)).step(x, y), expected)


def test_a_constant_in_the_logits_is_ignored():
    penalty = LogitPenalty(K)(InnerLoss.plain(torch.tensor([0, 1]), K)).logit_penalty
    logits = torch.randn(2, K, dtype=torch.float64)
    torch.testing.assert_close(penalty(logits + 7.0), penalty(logits))


@pytest.mark.parametrize(("annealing", "factor"), [(0.0, 1.0), (1.0, 0.1), (2.0, 0.01)])
def test_it_follows_the_learning_rate_down(annealing, factor):
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.5)
    meta = without_meta_steps(net, LogitPenalty(K, start=0.1, annealing=annealing), optimizer)
    x, y = batch(12, 1)
    plain = cross_entropy(net(x), y)
    high = meta.step(x, y) - plain
    optimizer.param_groups[0]["lr"] = 0.05
    torch.testing.assert_close(meta.step(x, y) - plain, factor * high, rtol=1e-3, atol=1e-6)


def test_warming_up_counts_as_high():
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.01)
    meta = without_meta_steps(net, LogitPenalty(K), optimizer)
    x, y = batch(12, 1)
    low = meta.step(x, y)
    optimizer.param_groups[0]["lr"] = 0.1
    torch.testing.assert_close(meta.step(x, y), low)


@both_ways
def test_a_model_that_does_not_over_fit_is_left_alone(through):
    """Held-out samples that are predicted better than the training batch: no penalty at all."""
    net = make_net(norm=False, dropout=0.0)
    x, y = batch(12, 1)
    x_meta, _ = batch(10, 2)
    held_out = (x_meta, net(x_meta).argmax(1))
    meta = calibrator(net, LogitPenalty(K), meta=[held_out], through=through)
    torch.testing.assert_close(meta.step(x, y), cross_entropy(net(x), y))
    assert float(meta._task.overfitting.share) == 0.0


@both_ways
def test_over_fitting_is_what_the_losses_say(through):
    net = make_net(norm=False, dropout=0.0)
    (x, _), held_out = batch(12, 1), batch(10, 2)
    labels = net(x).argmax(1)
    training, judged = cross_entropy(net(x), labels), cross_entropy(net(held_out[0]), held_out[1])
    meta = calibrator(net, LogitPenalty(K), meta=[held_out], through=through)
    meta.step(x, labels)
    share = float(meta._task.overfitting.share)
    assert share == pytest.approx(1.0 - float(training.detach() / judged.detach()), rel=1e-3)
    assert share > 0.1


def test_over_fitting_is_a_running_mean_and_skips_what_is_not_finite():
    found = Overfitting()
    assert found.share == 0.0
    found.see(torch.tensor([0.5, 1.0]))
    assert float(found.share) == pytest.approx(0.5)
    found.see(torch.tensor([math.nan, 1.0]))
    assert float(found.share) == pytest.approx(0.5)
    found.see(torch.tensor([0.0, 1.0]))
    assert float(found.share) == pytest.approx(1.0 - 0.8 * 0.5)
    found.see(torch.tensor([100.0, 1.0]))
    assert float(found.share) == 0.0


def test_losses_that_are_not_finite_at_first_leave_no_trace():
    found = Overfitting()
    found.see(torch.tensor([math.inf, 1.0]))
    assert float(found.share) == 0.0
    found.see(torch.tensor([0.1, 0.5]))
    assert float(found.share) == pytest.approx(0.8)


def test_a_model_that_is_perfect_everywhere_does_not_over_fit():
    found = Overfitting()
    found.see(torch.zeros(2))
    assert float(found.share) == 0.0


@pytest.mark.parametrize("mask", [-math.inf, -1e4])
def test_masked_classes_are_left_out(mask):
    penalty = LogitPenalty(3)(InnerLoss.plain(torch.tensor([0]), 3)).logit_penalty
    logits = torch.tensor([[1.0, 3.0, mask]], requires_grad=True)
    value = penalty(logits)
    assert value.item() == pytest.approx(0.1 * 2.0)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    torch.testing.assert_close(gradient, 0.1 * torch.tensor([[-2.0, 2.0, 0.0]]))


def test_the_end_of_a_schedule_at_0_does_not_bring_the_penalty_back():
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.5)
    meta = without_meta_steps(net, LogitPenalty(K), optimizer)
    x, y = batch(12, 1)
    meta.step(x, y)
    optimizer.param_groups[0]["lr"] = 0.0
    torch.testing.assert_close(meta.step(x, y), cross_entropy(net(x), y))


def test_asking_changes_nothing_about_the_highest_rate():
    net = make_net(norm=False, dropout=0.0)
    optimizer = sgd(net, lr=0.1)
    meta = calibrator(net, LogitPenalty(K), optimizer=optimizer)
    meta.step(*batch(12, 1))
    optimizer.param_groups[0]["lr"] = 5.0
    meta.hypergradient(*batch(12, 1), batch(10, 2))
    meta.loss(*batch(12, 1))
    optimizer.param_groups[0]["lr"] = 0.1
    assert meta._task.optimizer.relative_lr == 1.0


def test_over_fitting_follows_the_model_to_another_device():
    """The meta device holds no values; where everything would be is all that can be seen without a second device."""
    meta = calibrator(hyperparameters=LogitPenalty(K))
    meta.step(*batch(12, 1))
    meta.model.to("meta")
    meta._follow_model()
    assert meta._task.overfitting.losses.device.type == "meta"


def test_where_the_training_is_can_be_resumed():
    nets = [make_net(norm=False, dropout=0.0) for _ in range(2)]
    x, y = batch(12, 1)
    optimizers = [sgd(nets[0], lr=0.5), sgd(nets[1], lr=0.05)]
    first, second = (calibrator(net, LogitPenalty(K), optimizer=each) for net, each in zip(nets, optimizers))
    first.step(x, y)
    second.load_state_dict(first.state_dict())
    optimizers[0].param_groups[0]["lr"] = 0.05
    assert second._task.phase() == first._task.phase()
    torch.testing.assert_close(second.step(x, y), first.step(x, y), rtol=0.0, atol=0.0)
    assert second._task.optimizer.relative_lr == pytest.approx(0.1)


@both_ways
def test_held_out_samples_decide_whether_more_or_less_is_asked_for(through):
    """Ones that agree with the training batch want larger logits, ones that contradict it smaller ones."""
    net = make_net(norm=False, dropout=0.0)
    x, y = batch(32, 1)
    optimizer = sgd(net, lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        optimizer.step()
    found = []
    for labels in (y, (y + 1) % K):
        meta = calibrator(net, LogitPenalty(K), optimizer=optimizer, through=through, refine=False)
        meta._task.overfitting.losses = torch.tensor([0.5, 1.0])
        found.append(meta.hypergradient(x, y, (x, labels))["base"].item())
    assert found[0] > 0.0
    assert found[1] < 0.0


def test_what_is_learned_decays_back_to_the_start():
    meta = calibrator(hyperparameters=LogitPenalty(K, decay=0.5))
    meta.hyperparameters.base.data.fill_(2.0)
    meta.step(*batch(12, 1))
    assert meta.hyperparameters.base.item() == pytest.approx(1.0, abs=0.02)


def test_its_export_has_the_strengths():
    found = LogitPenalty(3, start=0.1).export()
    assert found == {"base": 0.0, "deviation": [0.0] * 3, "strength": pytest.approx([0.1] * 3)}


@pytest.mark.parametrize("name", ["start", "rate", "share", "decay", "annealing"])
def test_settings_outside_their_domain_are_refused(name):
    with pytest.raises(InvalidValueError, match=f"`{name}` must be"):
        LogitPenalty(3, **{name: -1.0})
