"""The calibrator in a loop: what it computes, what it leaves alone, and what it is used with."""

import copy
import gc
import json
import math
import pickle

import pytest
import torch
from tests.metalearning.models import K, batch, batches, make_net
from torch import nn

import metacal
from metacal import MetaCalibrator, NonUniformLabelSmoothing, ScalarLabelSmoothing, UnitwiseL2, VectorLabelSmoothing
from metacal.errors import InvalidValueError, StorageError
from metacal.losses import DECE, MMCE, SBECE, CrossEntropy, FocalLoss, FunctionLoss, SAvUC
from metacal.metalearning import LearnableFocalGamma, LearnableTemperature

HYPERPARAMETERS = {
    "scalar": lambda net: ScalarLabelSmoothing(K),
    "vector": lambda net: VectorLabelSmoothing(K),
    "non_uniform": lambda net: NonUniformLabelSmoothing(K),
    "l2": lambda net: UnitwiseL2(net.fc),
    "temperature": lambda net: LearnableTemperature(),
    "temperature_in_training": lambda net: LearnableTemperature(in_training=True),
    "gamma": lambda net: LearnableFocalGamma(K),
    "several": lambda net: {"smoothing": VectorLabelSmoothing(K), "l2": UnitwiseL2(net.fc)},
}


def train(meta, optimizer, steps, *, lr=0.1, start=0, plain=False):
    losses = []
    for (x, y), pair in list(zip(batches(steps + start), batches(steps + start, seed=500)))[start:]:
        loss = nn.functional.cross_entropy(meta(x), y) if plain else meta.step(x, y, meta=pair, lr=lr)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_one_step_follows_the_papers_order():
    """Forward; simulated step with the current omega; meta-loss; Adam; clamp; loss with the updated omega."""
    net = make_net(norm=False, dropout=0.0)
    twin = copy.deepcopy(net)
    smoothing = VectorLabelSmoothing(K)
    smoothing.strength.data.fill_(0.1)
    meta = MetaCalibrator(net, net.fc, smoothing, preset="paper")
    (x, y), (x_meta, y_meta) = batch(12, 1), batch(10, 2)
    loss = meta.step(x, y, meta=(x_meta, y_meta), lr=0.05)

    strength = torch.full((K,), 0.1, requires_grad=True)
    adam = torch.optim.Adam([strength], lr=1e-3)

    def soft(s):
        return nn.functional.one_hot(y, K) * (1 - s[y, None]) + s[y, None] / K

    features = twin.backbone(x).detach()
    weight, bias = (p.detach().requires_grad_() for p in (twin.fc.weight, twin.fc.bias))
    inner = -(soft(strength) * torch.log_softmax(features @ weight.T + bias, 1)).sum()
    steps = torch.autograd.grad(inner, (weight, bias), create_graph=True)
    weight, bias = weight - 0.05 * steps[0], bias - 0.05 * steps[1]
    logits = twin.backbone(x_meta).detach() @ weight.T + bias
    (CrossEntropy() + 0.5 * DECE())(logits, y_meta).backward(inputs=[strength])
    adam.step()
    strength.data.clamp_(0.0, 0.5)
    torch.testing.assert_close(meta.hyperparameters.strength, strength, rtol=1e-5, atol=1e-7)
    expected = -(soft(strength.detach()) * torch.log_softmax(twin(x), 1)).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(strength, torch.full((K,), 0.1))


def test_backward_gives_the_models_gradient_and_no_leak():
    net = make_net(dropout=0.0)
    twin = copy.deepcopy(net)
    meta = MetaCalibrator(
        net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1, meta_lr=0.1, adaptive=False
    )
    (x, y), pair = batch(12, 1), batch(10, 2)
    meta.step(x, y, meta=pair, lr=0.1)
    loss = meta.step(x, y, meta=pair, lr=0.1)
    assert all(p.grad is None for p in net.parameters())
    loss.backward()
    soft = meta.hyperparameters.soft_labels(y).detach()
    twin(x)
    (-(soft * torch.log_softmax(twin(x), 1)).sum() / len(y)).backward()
    for ours, plain in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-5, atol=1e-7)
    assert all(p.grad is None for p in meta.hyperparameters.parameters())


@pytest.mark.parametrize("meta_forward", ["train", "eval"])
@pytest.mark.parametrize("estimator", ["small_step", "one_step", "implicit", "evograd"])
def test_the_meta_forward_leaves_no_trace(estimator, meta_forward):
    """After a step: buffers, modes, gradients and the random stream are those of a plain forward pass."""
    net, twin = make_net(), make_net()
    meta = MetaCalibrator(
        net, net.fc, NonUniformLabelSmoothing(K), every=1, estimator=estimator, meta_forward=meta_forward
    )
    (x, y), pair = batch(12, 1), batch(10, 2)
    torch.manual_seed(7)
    twin(x)
    expected_random, expected_state = torch.get_rng_state(), state_of(twin)
    torch.manual_seed(7)
    meta.step(x, y, meta=pair, lr=0.1)
    assert torch.equal(torch.get_rng_state(), expected_random)
    assert same(state_of(net), expected_state)
    assert net.backbone[1].num_batches_tracked == 1 and net.backbone[1].track_running_stats
    assert all(module.training for module in net.modules())
    assert all(p.grad is None for p in net.parameters())


def test_a_buffer_of_the_users_own_is_restored():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, K)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.fc(x)

    net = Counting()
    meta = MetaCalibrator(net, "fc", ScalarLabelSmoothing(K), every=1)
    meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1)
    assert net.calls == 1


def test_hypergradient_changes_nothing():
    net = make_net()
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    before, omega, random = state_of(net), state_of(meta.hyperparameters), torch.get_rng_state()
    (x, y), pair = batch(12, 1), batch(10, 2)
    found = meta.hypergradient(x, y, meta=pair, lr=0.1)
    again = meta.hypergradient(x, y, meta=pair, lr=0.1)
    assert set(found) == {"strength", "distribution"} and same(found, again)
    assert found["strength"].abs().max() > 0
    assert same(state_of(net), before) and same(state_of(meta.hyperparameters), omega)
    assert torch.equal(torch.get_rng_state(), random)
    assert meta.history == [] and all(p.grad is None for p in (*net.parameters(), *meta.hyperparameters.parameters()))


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_never_is_plain_training_bit_for_bit(name):
    runs = []
    for plain in (True, False):
        net = make_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        meta = net if plain else MetaCalibrator(net, net.fc, HYPERPARAMETERS[name](net), every=math.inf)
        torch.manual_seed(5)
        train(meta, optimizer, 10, plain=plain)
        runs.append((state_of(net), torch.get_rng_state()))
    assert same(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_every_hyperparameter_moves_and_stays_feasible(name):
    net = make_net()
    meta = MetaCalibrator(net, net.fc, HYPERPARAMETERS[name](net), every=1, meta_lr=0.05)
    start = state_of(meta.hyperparameters)
    losses = train(meta, torch.optim.SGD(net.parameters(), lr=0.1), 15)
    assert all(math.isfinite(loss) for loss in losses)
    assert not same(start, state_of(meta.hyperparameters))
    bounds = meta.hyperparameters.bounds()
    for parameter, (low, high) in bounds.items():
        value = meta.hyperparameters.get_parameter(parameter)
        assert (low is None or value.min() >= low) and (high is None or value.max() <= high)
    assert len(meta.history) == 15 and meta.history[-1]["step"] == 14


@pytest.mark.parametrize(
    "objective",
    [CrossEntropy(), DECE(), MMCE(), CrossEntropy() + 0.5 * DECE(), CrossEntropy() + SBECE(), CrossEntropy() + SAvUC()],
    ids=repr,
)
def test_any_loss_is_a_meta_objective(objective):
    net = make_net()
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), objective, every=1)
    found = meta.hypergradient(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    assert all(torch.isfinite(g).all() for g in found.values()) and found["strength"].abs().max() > 0


@pytest.mark.parametrize("base", [FocalLoss(reduction="none"), FunctionLoss(nn.CrossEntropyLoss(reduction="none"))])
def test_the_base_loss_may_be_the_users_own(base):
    net = make_net(dropout=0.0)
    hyperparameters = UnitwiseL2(net.fc)
    meta = MetaCalibrator(net, net.fc, hyperparameters, base_loss=base, every=math.inf)
    x, y = batch(12, 1)
    torch.testing.assert_close(meta.loss(x, y), base(net(x), y).mean())
    MetaCalibrator(net, net.fc, UnitwiseL2(net.fc), base_loss=base, every=1).step(x, y, meta=batch(9, 2), lr=0.1)


def test_class_weights_go_with_soft_labels():
    weights, (x, y) = torch.tensor([0.2, 1.0, 3.0]), batch(12, 1)
    net = make_net(dropout=0.0)
    base = CrossEntropy(weights, reduction="none")
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), base_loss=base, every=1)
    torch.testing.assert_close(meta.loss(x, y), base(net(x), y).mean())  # nothing is smoothed yet
    loss = meta.step(x, y, meta=batch(9, 2), lr=0.1)
    soft = meta.hyperparameters.soft_labels(y).detach()
    assert meta.hyperparameters.strength.max().item() > 0.0
    torch.testing.assert_close(loss, nn.functional.cross_entropy(net(x), soft, weight=weights))


def test_meta_batches_are_drawn_only_when_due():
    net = make_net()
    drawn = []

    def stream():
        for number in range(100):
            drawn.append(number)
            yield batch(10, number)

    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=4)
    meta_batches = stream()
    for x, y in batches(9):
        meta.step(x, y, meta=meta_batches, lr=0.1)
    assert drawn == [0, 1, 2]
    assert [record["step"] for record in meta.history] == [0, 4, 8]


def test_every_adapts_adam():
    """Constant gradient: after k iterations, one step of every=k moves omega as far as k steps of every=1."""
    moved = []
    for every in (1, 4):
        net = make_net(norm=False, dropout=0.0)
        meta = MetaCalibrator(net, net.fc, VectorLabelSmoothing(K), every=every, meta_lr=1e-3, adaptive=False)
        meta.hyperparameters.strength.data.fill_(0.25)
        for _ in range(4):
            meta.step(*batch(12, 1), meta=batch(10, 2), lr=1e-6)
        moved.append(meta.hyperparameters.strength.detach() - 0.25)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-2, atol=1e-6)
    assert moved[0].abs().min() > 1e-3


def test_accumulated_micro_batches_are_one_batch():
    (x, y), pair = batch(12, 1, dtype=torch.float64), batch(10, 2, dtype=torch.float64)
    found = []
    for pieces in (1, 3):
        net = make_net(norm=False, dropout=0.0).double()
        meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1, meta_lr=0.1)
        parts = list(zip(x.chunk(pieces), y.chunk(pieces)))
        for number, (x_part, y_part) in enumerate(parts):
            meta.step(x_part, y_part, meta=pair, lr=0.1, boundary=number == pieces - 1)
        assert len(meta.history) == 1
        found.append(state_of(meta.hyperparameters))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_penalty_is_there_once_however_a_batch_is_accumulated(reduction):
    x, y = batch(12, 1, dtype=torch.float64)
    found = []
    for pieces in (1, 3):
        net = make_net(norm=False, dropout=0.0).double()
        meta = MetaCalibrator(net, net.fc, UnitwiseL2(net.fc), every=math.inf, inner_reduction=reduction)
        meta.hyperparameters.weight.data.fill_(0.5)
        parts = list(zip(x.chunk(pieces), y.chunk(pieces)))
        for number, (x_part, y_part) in enumerate(parts):
            loss = meta.step(x_part, y_part, meta=batch(10, 2), lr=0.1, boundary=number == pieces - 1)
            (loss / pieces if reduction == "mean" else loss).backward()
        found.append(net.fc.weight.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


def test_resuming_is_bit_identical():
    def fresh():
        net = make_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        hyperparameters = {"smoothing": NonUniformLabelSmoothing(K, initial="uniform"), "l2": UnitwiseL2(net.fc)}
        return net, optimizer, MetaCalibrator(net, net.fc, hyperparameters, every=2, meta_lr=0.05)

    net, optimizer, meta = fresh()
    torch.manual_seed(5)
    train(meta, optimizer, 5)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), meta.state_dict(), torch.get_rng_state()))
    train(meta, optimizer, 6, start=5)

    resumed, resumed_optimizer, resumed_meta = fresh()
    resumed.load_state_dict(saved[0])
    resumed_optimizer.load_state_dict(saved[1])
    resumed_meta.load_state_dict(saved[2])
    torch.set_rng_state(saved[3])
    train(resumed_meta, resumed_optimizer, 6, start=5)
    assert same(state_of(net), state_of(resumed))
    assert same(state_of(meta.hyperparameters), state_of(resumed_meta.hyperparameters))
    assert meta.history == resumed_meta.history


def test_adams_state_is_restored_by_name():
    """Members may be given in another order than when the state was saved."""
    members = {"a": lambda: ScalarLabelSmoothing(K), "b": lambda: NonUniformLabelSmoothing(K, initial="uniform")}

    def fresh(order):
        net = make_net(dropout=0.0)
        hyperparameters = {name: members[name]() for name in order}
        return MetaCalibrator(net, net.fc, hyperparameters, every=1, meta_lr=0.05)

    saved, same_order, other_order = fresh("ab"), fresh("ab"), fresh("ba")
    for x, y in batches(3):
        saved.step(x, y, meta=batch(10, 2), lr=0.1)
    for resumed in (same_order, other_order):
        resumed.load_state_dict(saved.state_dict())
        first = dict(zip(resumed.hyperparameters.omega(), resumed._adam.first))
        for name, moment in zip(saved.hyperparameters.omega(), saved._adam.first):
            assert torch.equal(first[name], moment)
    with pytest.raises(InvalidValueError, match="must be of the hyper-parameters strength, got one of"):
        MetaCalibrator(make_net(), "fc", ScalarLabelSmoothing(K))._adam.load_state_dict(
            saved.state_dict()["adam"], ["strength"]
        )


@pytest.mark.parametrize("way", ["step", "steer"])
def test_micro_batches_do_not_outlive_an_error(way):
    """The part before a failure belongs to no step; the next step is that of its own batch alone."""
    pair, (x, y) = batch(10, 2), batch(12, 1)
    net, other = make_net(dropout=0.0), make_net(dropout=0.0)
    failed, fresh = (MetaCalibrator(each, "fc", VectorLabelSmoothing(K), every=1, meta_lr=0.1) for each in (net, other))

    def advance(meta, x, **options):
        if way == "step":
            return meta.step(x, y, meta=pair, lr=0.1, **options)
        with meta.watching():
            loss = torch.nn.functional.cross_entropy(meta.model(x), y)
        return meta.steer(loss, y, meta=pair, lr=0.1, **options)

    advance(failed, batch(12, 5)[0], boundary=False)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        advance(failed, x[:, :3])
    net.load_state_dict(other.state_dict())
    advance(failed, x)
    advance(fresh, x)
    assert same(state_of(failed.hyperparameters), state_of(fresh.hyperparameters))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda meta: pickle.loads(pickle.dumps(meta))])
def test_a_copy_goes_its_own_way(copied):
    """A copy comes with a copy of the model, watches that one, and takes the steps that the original would."""
    net = make_net(dropout=0.0)
    meta = MetaCalibrator(net, "fc", VectorLabelSmoothing(K), every=1, meta_lr=0.1)
    meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    before = state_of(meta.hyperparameters)
    other = copied(meta)
    assert other.model is not net
    other.step(*batch(12, 3), meta=batch(10, 4), lr=0.1)
    assert same(state_of(meta.hyperparameters), before)
    meta.step(*batch(12, 3), meta=batch(10, 4), lr=0.1)
    assert same(state_of(meta.hyperparameters), state_of(other.hyperparameters))
    assert len(other.model.fc._forward_hooks) == 1
    other.remove()
    assert not other.model.fc._forward_hooks
    assert len(net.fc._forward_hooks) == 1


def test_state_dict_loads_with_weights_only(tmp_path):
    net = make_net()
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K), every=1)
    meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    torch.save(meta.state_dict(), tmp_path / "meta.pt")
    meta.load_state_dict(torch.load(tmp_path / "meta.pt", weights_only=True))
    assert len(meta.history) == 1


@pytest.mark.parametrize("steps", [0, 1, 7, 8, 20, 21])
def test_the_numbers_of_the_last_meta_step_are_restored(monkeypatch, tmp_path, steps):
    monkeypatch.setattr("metacal.metalearning.history.MOST_RECORDS", 8)  # the last row is not always one that is kept
    net = make_net()
    meta, other = (MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=1) for _ in range(2))
    for x, y in batches(steps):
        meta.step(x, y, meta=batch(10, 2), lr=0.1)
    other.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    torch.save(meta.state_dict(), tmp_path / "meta.pt")
    state = torch.load(tmp_path / "meta.pt", weights_only=True)
    other.load_state_dict(state)
    assert other.latest == meta.latest and bool(meta.latest) == (steps > 0)
    assert other.summary() == meta.summary()
    if steps:
        assert f"meta-loss {meta.latest['meta_loss'].item():.4g};" in meta.summary()
    state["history"].pop("last", None)  # as states were before
    other.load_state_dict(state)
    is_kept = steps in (1, 7, 21)
    assert other.latest == (meta.latest if is_kept else {}) and other.history == meta.history


@pytest.mark.bf16
def test_bfloat16_autocast_and_clipping_and_schedule():
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    for (x, y), pair in zip(batches(6), batches(6, seed=500)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = meta.step(x, y, meta=pair, lr=scheduler.get_last_lr()[0])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    assert loss.dtype == torch.float32 and math.isfinite(loss.item())
    assert [record["inner_step"] for record in meta.history] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert meta.skipped == 0


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.bf16)])
def test_models_in_other_precisions(dtype):
    net = make_net(norm=False).to(dtype)
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    meta.step(*batch(12, 1, dtype=dtype), meta=batch(10, 2, dtype=dtype), lr=0.1).backward()
    assert meta.hyperparameters.strength.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert meta.skipped == 0 and meta.history[0]["gradient_norm"] > 0


@pytest.mark.parametrize("shape", ["one_column", "flat"])
def test_binary_models_with_one_logit(shape):
    class Flat(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x).squeeze(1) if shape == "flat" else self.net(x)

    net = make_net(outputs=1, dropout=0.0)
    meta = MetaCalibrator(Flat(net), net.fc, NonUniformLabelSmoothing(2), every=1)
    x, y = batch(12, 1, classes=2)
    loss = meta.step(x, y, meta=batch(10, 2, classes=2), lr=0.1)
    meta.hyperparameters.strength.data.zero_()
    plain = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y.float())
    torch.testing.assert_close(meta.loss(x, y), plain)
    assert math.isfinite(loss.item()) and meta.history[0]["gradient_norm"] > 0


def test_inputs_may_be_tuples_or_dictionaries():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, K)

        def forward(self, left, right=None):
            return {"logits": self.fc(left + right)}

    torch.manual_seed(0)
    net = Two()
    meta = MetaCalibrator(net, "fc", VectorLabelSmoothing(K), every=1)
    (x, y), (x_meta, y_meta) = batch(12, 1), batch(10, 2)
    by_tuple = meta.hypergradient((x, x), y, meta=((x_meta, x_meta), y_meta), lr=0.1)
    pair = ({"left": x_meta, "right": x_meta}, y_meta)
    by_name = meta.hypergradient({"left": x, "right": x}, y, meta=pair, lr=0.1)
    assert same(by_tuple, by_name)


def test_a_frozen_backbone_leaves_only_the_head_to_train():
    net = make_net(dropout=0.0)
    net.backbone.requires_grad_(False)
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1).backward()
    assert all(p.grad is None for p in net.backbone.parameters())
    assert net.fc.weight.grad.abs().max() > 0


def test_the_whole_model_as_head_steps_every_parameter():
    net = make_net(norm=False, dropout=0.0).double()
    (x, y), pair = batch(12, 1, dtype=torch.float64), batch(10, 2, dtype=torch.float64)
    whole = MetaCalibrator(net, net, VectorLabelSmoothing(K), every=1).hypergradient(x, y, meta=pair, lr=0.5)
    head = MetaCalibrator(net, net.fc, VectorLabelSmoothing(K), every=1).hypergradient(x, y, meta=pair, lr=0.5)
    assert not torch.allclose(whole["strength"], head["strength"], rtol=1e-3)


def test_token_heads_count_every_position():
    """A linear head over (n, tokens, d) works on rows; labels may keep their shape."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, K))
    meta = MetaCalibrator(net, net[2], VectorLabelSmoothing(K), every=1)
    x, y, x_meta, y_meta = (
        torch.randn(4, 3, 5),
        torch.randint(K, (4, 3)),
        torch.randn(2, 3, 5),
        torch.randint(K, (2, 3)),
    )
    flat = meta.hypergradient(x.view(-1, 5), y.view(-1), meta=(x_meta.view(-1, 5), y_meta.view(-1)), lr=0.1)
    shaped = meta.hypergradient(x, y, meta=(x_meta, y_meta), lr=0.1)
    torch.testing.assert_close(flat["strength"], shaped["strength"])
    assert math.isfinite(meta.step(x, y, meta=(x_meta, y_meta), lr=0.1).item())


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # the compiler's own
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model(backend):
    net, twin = make_net(dropout=0.0), make_net(dropout=0.0)
    (x, y), pair = batch(12, 1), batch(10, 2)
    compiled = torch.compile(net, backend=backend)
    results = []
    for model, head in ((compiled, net.fc), (twin, twin.fc)):
        meta = MetaCalibrator(model, head, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
        loss = meta.step(x, y, meta=pair, lr=0.1)
        loss.backward()
        results.append((loss.item(), meta.hyperparameters.strength.detach().clone(), head.weight.grad.clone()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    torch.testing.assert_close(results[0][1], results[1][1])
    torch.testing.assert_close(results[0][2], results[1][2])
    assert same(state_of(net), state_of(twin))


def test_a_fabric_model():
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    net = make_net()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    meta = MetaCalibrator(model, net.fc, ScalarLabelSmoothing(K), every=1)
    loss = meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    fabric.backward(loss)
    optimizer.step()
    assert meta.history[0]["gradient_norm"] > 0


def test_calibrate_export_and_summary(tmp_path):
    net = make_net()
    meta = MetaCalibrator(
        net, net.fc, {"t": LearnableTemperature(), "s": VectorLabelSmoothing(K)}, every=1, meta_lr=0.1
    )
    assert "no meta step taken yet" in meta.summary()
    train(meta, torch.optim.SGD(net.parameters(), lr=0.1), 5)
    logits = torch.randn(4, K)
    temperature = meta.export()["t"]["temperature"]
    torch.testing.assert_close(meta.calibrate(logits), logits / temperature)
    assert temperature != 1.0
    learned = meta.export(tmp_path / "omega.json")
    assert json.loads((tmp_path / "omega.json").read_text()) == learned
    rows = torch.tensor(learned["s"]["soft_labels"])
    torch.testing.assert_close(rows.sum(1), torch.ones(K))
    for part in (
        "temperature",
        "strength",
        "meta-loss",
        "meta-gradient norm",
        "effective inner step 0.1",
        "5 meta steps",
    ):
        assert part in meta.summary()
    assert "\n" not in meta.summary()


def test_an_export_that_fails_leaves_what_was_there(tmp_path, no_room):
    net, path = make_net(), tmp_path / "omega.json"
    meta = MetaCalibrator(net, net.fc, VectorLabelSmoothing(K))
    learned = meta.export(path)
    with no_room(), pytest.raises(StorageError, match=r"omega\.json could not be written: File too large"):
        meta.export(path)
    assert json.loads(path.read_text()) == learned and list(tmp_path.iterdir()) == [path]


def test_summary_says_when_omega_does_not_move():
    net = make_net()
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=1)
    meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.0)
    assert "omega does not move: no gradient reaches it" in meta.summary()
    wanted = 0.0 if meta.hypergradient(*batch(12, 1), meta=batch(10, 2), lr=0.1)["strength"] > 0 else 0.5
    meta.hyperparameters.strength.data.fill_(wanted)
    meta.step(*batch(12, 1), meta=batch(10, 2), lr=0.1)
    assert "does not move: every entry of strength sits on a bound" in meta.summary()
    several = MetaCalibrator(net, net.fc, [NonUniformLabelSmoothing(K, initial="uniform"), UnitwiseL2(net.fc)], every=1)
    several.hyperparameters.members["0"].strength.data.fill_(0.5)
    several.step(*batch(12, 1), meta=batch(10, 2), lr=0.0)
    assert "every entry of 0.strength sits on a bound" in several.summary()


def test_history_is_thinned_out(monkeypatch):
    monkeypatch.setattr("metacal.metalearning.history.MOST_RECORDS", 8)
    net = make_net()
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=1)
    for x, y in batches(20):
        meta.step(x, y, meta=batch(10, 2), lr=0.1)
    steps = [record["step"] for record in meta.history]
    assert len(steps) < 8 and steps[0] == 0 and steps == sorted(steps) and steps[-1] >= 16


def test_remove_takes_the_hook_off():
    net = make_net()
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K))
    assert len(net.fc._forward_hooks) == 1 and len(net.fc._forward_pre_hooks) == 1
    meta.remove()
    assert not net.fc._forward_hooks and not net.fc._forward_pre_hooks
    MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K))  # gone at once, and its hooks with it
    gc.collect()
    assert not net.fc._forward_hooks


def test_top_level_names():
    assert metacal.MetaCalibrator is MetaCalibrator and callable(metacal.data.cycle)


def test_by_default_meta_steps_are_dense_at_first_and_sparse_later():
    net = make_net(norm=False, dropout=0.0)
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K))
    x, y = batch(4, 1)
    with torch.no_grad():
        for _ in range(1040):
            meta.step(x, y, meta=batch(4, 2), lr=0.1)
    steps = [record["step"] for record in meta.history]
    assert steps == [*range(1000), 1008, 1024]
