"""Steering: going backward from a trainer's own loss gives the gradients of the learned loss."""

import math

import pytest
import torch
from tests.metalearning.models import K, batch, both_ways, calibrator, make_net, sgd
from torch.nn import functional

from metacal import (
    LearnableFocalGamma,
    LearnableTemperature,
    NonUniformLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)
from metacal.errors import InvalidValueError
from metacal.losses import CrossEntropyLoss, FocalLoss
from metacal.metalearning import InnerLoss
from metacal.metalearning.steering import steer_gradient


def smoothing():
    found = NonUniformLabelSmoothing(K, initial="uniform")
    found.strength.data.copy_(torch.tensor([0.1, 0.2, 0.3]))
    return found


def warm():
    found = LearnableTemperature(in_training=True)
    found.log_temperature.data.fill_(0.7)
    return found


def gradients(net):
    return {name: parameter.grad.clone() for name, parameter in net.named_parameters()}


def meta_of(net, hyperparameters, **options):
    return calibrator(net, hyperparameters, **{"meta": [batch(9, 1)], "lr": 0.3, **options})


def by_step(make, **options):
    net = make_net(dropout=0.0)
    meta = meta_of(net, make(), **options)
    meta.step(*batch(12, 0)).backward()
    return gradients(net), meta


LOSSES = {
    "mean": (functional.cross_entropy, 1.0),
    "sum": (lambda z, y: functional.cross_entropy(z, y, reduction="sum"), 12.0),
    "scaled": (lambda z, y: 1024.0 * functional.cross_entropy(z, y) / 4.0, 256.0),
    "log-softmax": (lambda z, y: functional.nll_loss(z.log_softmax(1), y), 1.0),
}


@both_ways
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("make", [smoothing, warm, lambda: LearnableFocalGamma(K)])
def test_gradients_are_those_of_step_times_the_factor_of_the_loss(name, make, through):
    loss_of, factor = LOSSES[name]
    wanted, by_hand = by_step(make, through=through)
    net = make_net(dropout=0.0)
    meta = meta_of(net, make(), through=through)
    x, y = batch(12, 0)
    with meta.watching():
        loss = loss_of(net(x), y)
    value = loss.item()
    meta.steer(loss, y)
    loss.backward()
    assert loss.item() == value
    for parameter, gradient in gradients(net).items():
        torch.testing.assert_close(gradient, factor * wanted[parameter], rtol=1e-4, atol=1e-6 * factor)
    for own, theirs in zip(meta.hyperparameters.parameters(), by_hand.hyperparameters.parameters()):
        torch.testing.assert_close(own, theirs)


@both_ways
def test_a_loop_that_steers_is_a_loop_that_steps(through):
    """Omega, Adam's state and weights along 20 steps, with micro-batches."""
    ends = []
    for steers in (False, True):
        net = make_net(dropout=0.0)
        optimizer = sgd(net, lr=0.2)
        options = dict(meta=[batch(9, 100 + number) for number in range(5)], optimizer=optimizer, refine=False)
        meta = calibrator(net, VectorLabelSmoothing(K), every=2, through=through, **options)
        for number in range(20):
            x, y = batch(12, number)
            boundary = number % 2 == 1
            if steers:
                with meta.watching():
                    loss = functional.cross_entropy(net(x), y)
                meta.steer(loss, y, boundary)
            else:
                loss = meta.step(x, y, boundary)
            loss.backward()
            if boundary:
                optimizer.step()
                optimizer.zero_grad()
        ends.append((meta.hyperparameters.strength.detach(), net.fc.weight.detach(), net.backbone[1].running_mean))
    assert float(ends[0][0].max()) > 0.001
    for by_hand, steered in zip(*ends):
        torch.testing.assert_close(steered, by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("margin", [80.0, 90.0, 103.0, 110.0, 1e4])
def test_a_saturated_batch_has_finite_gradients(margin):
    """Where every margin is so large that the gradient of cross-entropy is rounded to 0."""
    net = torch.nn.Linear(3, 3, bias=False)
    net.weight.data = torch.eye(3) * margin
    meta = calibrator(net, VectorLabelSmoothing(3), meta=[(torch.eye(3), torch.arange(3))], every=math.inf)
    meta.hyperparameters.strength.data.fill_(0.1)
    with meta.watching():
        loss = functional.cross_entropy(net(torch.eye(3)), torch.arange(3))
    meta.steer(loss, torch.arange(3))
    loss.backward()
    assert bool(torch.isfinite(net.weight.grad).all())
    pull = net.weight.grad.diagonal()
    assert bool((pull > 0.01).all()) if margin < 87 else bool((pull.abs() < 0.1).all())


def test_terms_that_do_not_pass_the_logits_stay():
    wanted, _ = by_step(smoothing)
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing())
    x, y = batch(12, 0)
    with meta.watching():
        loss = functional.cross_entropy(net(x), y) + 0.5 * net.backbone[0].weight.square().sum()
    meta.steer(loss, y)
    loss.backward()
    extra = net.backbone[0].weight.grad - net.backbone[0].weight.detach()
    torch.testing.assert_close(extra, wanted["backbone.0.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.bf16
def test_half_precision_logits():
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing())
    x, y = batch(12, 0)
    with meta.watching(), torch.autocast("cpu", dtype=torch.bfloat16):
        loss = functional.cross_entropy(net(x), y)
    meta.steer(loss, y)
    loss.backward()
    wanted, _ = by_step(smoothing)
    torch.testing.assert_close(net.fc.weight.grad, wanted["fc.weight"], rtol=0.1, atol=0.01)


def test_another_base_loss():
    net = make_net(dropout=0.0)
    options = dict(base_loss=FocalLoss(gamma=2.0, reduction="none"))
    meta = meta_of(net, warm(), **options)
    x, y = batch(12, 0)
    with meta.watching():
        loss = FocalLoss(gamma=2.0)(net(x), y)
    meta.steer(loss, y)
    loss.backward()
    wanted, _ = by_step(warm, **options)
    torch.testing.assert_close(net.fc.weight.grad, wanted["fc.weight"], rtol=1e-4, atol=1e-6)


def test_class_weights():
    weights = torch.tensor([0.2, 1.0, 3.0])
    options = dict(base_loss=CrossEntropyLoss(weights, reduction="none"))
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing(), **options)
    x, y = batch(12, 0)
    with meta.watching():
        loss = functional.cross_entropy(net(x), y, weight=weights)
    meta.steer(loss, y)
    loss.backward()
    wanted, _ = by_step(smoothing, **options)
    factor = 12.0 / float(weights[y].sum())
    torch.testing.assert_close(net.fc.weight.grad, factor * wanted["fc.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("loss_of", "message"),
    [
        (
            lambda z, y: functional.cross_entropy(z, y, label_smoothing=0.1),
            r"label smoothing.*by 0\.1\.",
        ),
        (lambda z, y: functional.multi_margin_loss(z, y), "must be the cross-entropy of the head's output"),
        (lambda z, y: functional.cross_entropy(z, (y + 1) % K), "must be the cross-entropy"),
        (lambda z, y: z.detach().sum(), "must depend on the head's output"),
        (lambda z, y: torch.ones(2, requires_grad=True).sum(), "does not depend on it"),
    ],
)
def test_a_loss_that_cannot_be_seen(loss_of, message):
    net = make_net()
    meta = meta_of(net, VectorLabelSmoothing(K))
    x, y = batch(12, 0)
    with meta.watching():
        loss = loss_of(net(x), y)
    with pytest.raises(InvalidValueError, match=message):
        meta.steer(loss, y)


def test_a_penalty_on_weights_is_refused():
    net = make_net()
    meta = meta_of(net, UnitwiseL2(net.fc), head=net.fc)
    x, y = batch(12, 0)
    with meta.watching():
        loss = functional.cross_entropy(net(x), y)
    with pytest.raises(InvalidValueError, match="adds a penalty on weights"):
        meta.steer(loss, y)


@both_ways
def test_a_head_that_did_not_run(through):
    meta = meta_of(make_net(), VectorLabelSmoothing(K), through=through)
    with pytest.raises(InvalidValueError, match="got 0 calls"):
        meta.steer(torch.ones(2, requires_grad=True).sum(), batch(12, 0)[1])


def test_nothing_learned_changes_nothing():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.arange(6) % 3
    passed = logits * 1.0
    loss = functional.cross_entropy(passed, y)
    steer_gradient(loss, passed, InnerLoss(y, 3, targets=y), CrossEntropyLoss(reduction="none"), compares=True)
    loss.backward()
    plain = torch.autograd.grad(functional.cross_entropy(logits, y), logits)[0]
    torch.testing.assert_close(logits.grad, plain)


@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 1e38])
def test_a_gradient_that_is_not_finite_is_left_to_the_trainer(factor):
    """A gradient scaler begins so high that the first gradients may overflow, and leaves those steps out itself."""
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing())
    x, y = batch(12, 0)
    with meta.watching():
        loss = functional.cross_entropy(net(x), y, reduction="sum") * factor * 1e3
    meta.steer(loss, y)
    loss.backward()
    assert not torch.isfinite(net.fc.weight.grad).all()


def saturated(size):
    """Logits of samples that are all classified rightly, the surer the larger ``size``."""
    y = torch.arange(8) % 3
    noise = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    return (size * functional.one_hot(y, 3) + noise).requires_grad_(), y


@pytest.mark.parametrize("size", [8.0, 12.0, 16.0, 40.0, 70.0])
def test_late_in_training_other_ways_to_compute_the_loss_are_not_taken_for_another_loss(size):
    leaf, y = saturated(size)
    passed = leaf * 1.0
    loss = (passed.logsumexp(1) - passed.gather(1, y.unsqueeze(1)).squeeze(1)).mean()
    steer_gradient(loss, passed, InnerLoss(y, 3, targets=y), CrossEntropyLoss(reduction="none"), compares=True)


@pytest.mark.parametrize("size", [8.0, 40.0, 70.0])
def test_labels_are_smoothed_however_sure_the_model_is(size):
    leaf, y = saturated(size)
    passed = leaf * 1.0
    loss = functional.cross_entropy(passed, y)
    soft = 0.9 * functional.one_hot(y, 3) + 0.1 / 3
    steer_gradient(loss, passed, InnerLoss(y, 3, targets=soft), CrossEntropyLoss(reduction="none"), compares=True)
    loss.backward()
    wanted = torch.autograd.grad(functional.cross_entropy(leaf, soft), leaf)[0]
    torch.testing.assert_close(leaf.grad, wanted, rtol=1e-2, atol=1e-6)


class Wrapped(torch.nn.Module):
    """A trainer's module around the model: called with a batch, it calls the model with a part of it."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return self.net(batch["x"])


@both_ways
def test_the_model_may_be_called_by_a_module_of_the_trainers(through):
    """What the calibrator's model was given and returned is seen wherever it is called from."""
    wanted, by_hand = by_step(smoothing, through=through)
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing(), through=through)
    x, y = batch(12, 0)
    with meta.watching() as outputs:
        loss = functional.cross_entropy(Wrapped(net)({"x": x}), y)
        assert len(outputs) == 1
    meta.steer(loss, y)
    loss.backward()
    torch.testing.assert_close(net.fc.weight.grad, wanted["fc.weight"], rtol=1e-4, atol=1e-6)
    assert torch.equal(meta.hyperparameters.strength, by_hand.hyperparameters.strength)


def test_the_input_may_be_said():
    """A trainer that calls a part of the model says what the whole is given."""
    wanted, by_hand = by_step(smoothing, through="model", head="fc")
    net = make_net(dropout=0.0)
    meta = meta_of(net, smoothing(), through="model", head="fc")
    x, y = batch(12, 0)
    with meta.watching():
        loss = functional.cross_entropy(net.fc(net.backbone(x)), y)
    meta.steer(loss, y, x=x)
    loss.backward()
    torch.testing.assert_close(net.fc.weight.grad, wanted["fc.weight"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(meta.hyperparameters.strength, by_hand.hyperparameters.strength)


@both_ways
def test_keyword_arguments_are_seen(through):
    class Keyword(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(5, K)

        def forward(self, x=None, scale=1.0, labels=None):
            return {"logits": self.fc(scale * x), "loss": None}

    torch.manual_seed(0)
    net = Keyword()
    (x, y), (x_meta, y_meta) = batch(12, 0), batch(9, 1)
    held_out = [{"x": x_meta, "scale": 2.0, "labels": y_meta}]
    meta = meta_of(net, smoothing(), meta=held_out, through=through)
    with meta.watching():
        loss = functional.cross_entropy(net(x=x, scale=2.0, labels=y)["logits"], y)
    meta.steer(loss, y)
    torch.manual_seed(0)
    twin = meta_of(Keyword(), smoothing(), meta=held_out, through=through)
    twin.step({"x": x, "scale": 2.0}, y)
    torch.testing.assert_close(meta.hyperparameters.strength, twin.hyperparameters.strength)
    assert meta.history[0]["gradient_norm"] == pytest.approx(twin.history[0]["gradient_norm"], rel=1e-5)
