"""The calibrator in a loop: what it computes, what it leaves alone, and what it says."""

import copy
import gc
import json
import math

import pytest
import torch
from tests.metalearning.models import K, batch, batches, both_ways, calibrator, make_net, same, sgd, state_of, train
from torch import nn

import metacal
from metacal import (
    PAPER,
    HierarchicalLabelSmoothing,
    LogitPenalty,
    MetaCalibrator,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)
from metacal.errors import InvalidValueError, StorageError
from metacal.losses import (
    AfterTemperature,
    CrossEntropyLoss,
    DECELoss,
    FocalLoss,
    FunctionLoss,
    MMCELoss,
    SAvUCLoss,
    SBECELoss,
)
from metacal.metalearning import GammaNet, LearnableFocalGamma, LearnableTemperature

HYPERPARAMETERS = {
    "scalar": lambda net: ScalarLabelSmoothing(K),
    "vector": lambda net: VectorLabelSmoothing(K),
    "non_uniform": lambda net: NonUniformLabelSmoothing(K),
    "hierarchical": lambda net: HierarchicalLabelSmoothing(K, start=0.0),
    "l2": lambda net: UnitwiseL2(net.fc),
    "penalty": lambda net: LogitPenalty(K),
    "temperature": lambda net: LearnableTemperature(),
    "temperature_in_training": lambda net: LearnableTemperature(in_training=True),
    "gamma": lambda net: LearnableFocalGamma(K),
    "gamma_net": lambda net: GammaNet(K),
    "several": lambda net: {"smoothing": VectorLabelSmoothing(K), "l2": UnitwiseL2(net.fc)},
}


def test_one_step_follows_the_papers_order():
    """Forward; simulated step with the current omega; meta-loss; Adam; clamp; loss with the updated omega."""
    net = make_net(norm=False, dropout=0.0)
    twin = copy.deepcopy(net)
    smoothing = VectorLabelSmoothing(K)
    smoothing.strength.data.fill_(0.1)
    (x, y), (x_meta, y_meta) = batch(12, 1), batch(10, 2)
    meta = MetaCalibrator(net, sgd(net, lr=0.05), [(x_meta, y_meta)], smoothing, reduction="sum", outer=PAPER)
    assert meta.through == "head"
    loss = meta.step(x, y)

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
    (CrossEntropyLoss() + 0.5 * DECELoss())(logits, y_meta).backward(inputs=[strength])
    adam.step()
    strength.data.clamp_(0.0, 0.5)
    torch.testing.assert_close(meta.hyperparameters.strength, strength, rtol=1e-5, atol=1e-7)
    expected = -(soft(strength.detach()) * torch.log_softmax(twin(x), 1)).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(strength, torch.full((K,), 0.1))


def test_a_model_an_optimiser_and_held_out_samples_are_all_it_needs():
    net = make_net()
    meta = MetaCalibrator(net, torch.optim.Adam(net.parameters()), [batch(10, 2)])
    assert isinstance(meta.hyperparameters, LogitPenalty)
    assert meta.hyperparameters.num_classes == K
    torch.testing.assert_close(meta.hyperparameters.strength.detach(), torch.full((K,), 0.1))
    assert meta.outer == metacal.OuterStep()
    assert meta.through == "model"
    assert meta.output_layer is net.fc
    assert math.isfinite(meta.step(*batch(12, 1)).item())


def test_the_default_objective():
    """Judged after the best temperature, unless the outer step says not to, or a temperature is what is learned."""
    assert repr(calibrator()._task.objective) == repr(AfterTemperature(CrossEntropyLoss()))
    assert repr(calibrator(outer=PAPER)._task.objective) == repr(CrossEntropyLoss() + 0.5 * DECELoss())
    with_temperature = calibrator(hyperparameters=[LearnableTemperature(), ScalarLabelSmoothing(K)])
    assert repr(with_temperature._task.objective) == repr(CrossEntropyLoss())


@both_ways
def test_backward_gives_the_models_gradient_and_no_leak(through):
    net = make_net(dropout=0.0)
    twin = copy.deepcopy(net)
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    meta = calibrator(net, smoothing, lr=0.1, adaptive=False, through=through)
    x, y = batch(12, 1)
    meta.step(x, y)
    loss = meta.step(x, y)
    assert all(p.grad is None for p in net.parameters())
    loss.backward()
    soft = meta.hyperparameters.soft_labels(y).detach()
    twin(x)
    (-(soft * torch.log_softmax(twin(x), 1)).sum() / len(y)).backward()
    for ours, plain in zip(net.parameters(), twin.parameters()):
        torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-5, atol=1e-7)
    assert all(p.grad is None for p in meta.hyperparameters.parameters())


@both_ways
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_meta_step_leaves_no_trace(through, mode):
    """After a step: buffers, modes, gradients and the random stream are those of a plain forward pass."""
    net, twin = make_net(), make_net()
    weights = {name: value.data_ptr() for name, value in net.named_parameters()}
    x, y = batch(12, 1)
    torch.manual_seed(7)
    twin(x)
    expected_random, expected_state = torch.get_rng_state(), state_of(twin)
    torch.manual_seed(7)
    meta = calibrator(net, NonUniformLabelSmoothing(K), mode=mode, through=through)
    meta.step(x, y)
    assert torch.equal(torch.get_rng_state(), expected_random)
    assert same(state_of(net), expected_state)
    assert net.backbone[1].num_batches_tracked == 1
    assert net.backbone[1].track_running_stats
    assert all(module.training for module in net.modules())
    assert all(p.grad is None for p in net.parameters())
    assert {name: value.data_ptr() for name, value in net.named_parameters()} == weights
    assert len(meta.history) == 1
    assert meta.history[0]["gradient_norm"] > 0


@both_ways
def test_a_buffer_of_the_users_own_is_restored(through):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, K)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.fc(x)

    net = Counting()
    calibrator(net, through=through).step(*batch(8, 1))
    assert net.calls == 1


@both_ways
def test_parameters_come_back_when_a_meta_step_fails(through):
    net = make_net(dropout=0.0)

    def fail(logits, targets):
        raise RuntimeError("no loss today")

    meta = calibrator(net, LearnableTemperature(), base_loss=FunctionLoss(fail), through=through)
    before = state_of(net)
    with pytest.raises(RuntimeError, match="no loss today"):
        meta.step(*batch(12, 1))
    after = state_of(net)
    assert same({n: before[n] for n, _ in net.named_parameters()}, {n: after[n] for n, _ in net.named_parameters()})


@both_ways
def test_hypergradient_changes_nothing(through):
    net = make_net()
    meta = calibrator(net, NonUniformLabelSmoothing(K, initial="uniform"), through=through, memory=64)
    before, omega, random = state_of(net), state_of(meta.hyperparameters), torch.get_rng_state()
    (x, y), pair = batch(12, 1), batch(10, 2)
    found = meta.hypergradient(x, y, pair)
    again = meta.hypergradient(x, y, pair)
    assert set(found) == {"strength", "distribution"}
    assert same(found, again)
    assert found["strength"].abs().max() > 0
    assert same(state_of(net), before)
    assert same(state_of(meta.hyperparameters), omega)
    assert torch.equal(torch.get_rng_state(), random)
    assert meta.history == []
    assert all(p.grad is None for p in (*net.parameters(), *meta.hyperparameters.parameters()))
    assert meta.stream.drawn == 0
    assert meta.state_dict()["memory"] == {}


@both_ways
@pytest.mark.parametrize("name", [name for name in HYPERPARAMETERS if name != "gamma_net"])
def test_never_is_plain_training_bit_for_bit(name, through):
    runs = []
    for plain in (True, False):
        net = make_net()
        optimizer = sgd(net, momentum=0.9)
        torch.manual_seed(5)
        options = dict(optimizer=optimizer, head="fc", through=through, every=math.inf)
        meta = net if plain else calibrator(net, HYPERPARAMETERS[name](net), **options)
        train(meta, optimizer, 10)
        runs.append((state_of(net), torch.get_rng_state()))
    assert same(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])


@both_ways
@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_every_hyperparameter_moves_and_stays_feasible(name, through):
    net = make_net(dropout=0.0)  # its masks differ from one release of torch to the next
    optimizer = sgd(net)
    options = dict(meta=batches(15, n=10, seed=500), optimizer=optimizer, head="fc", through=through)
    meta = calibrator(net, HYPERPARAMETERS[name](net), **options)
    for parameter in meta.hyperparameters.bounds():  # off the bound that it starts at, so that it moves either way
        meta.hyperparameters.get_parameter(parameter).data.add_(0.01)
    start = state_of(meta.hyperparameters)
    losses = train(meta, optimizer, 15)
    assert all(math.isfinite(loss) for loss in losses)
    assert not same(start, state_of(meta.hyperparameters))
    bounds = meta.hyperparameters.bounds()
    for parameter, (low, high) in bounds.items():
        value = meta.hyperparameters.get_parameter(parameter)
        assert low is None or value.min() >= low
        assert high is None or value.max() <= high
    assert len(meta.history) == 15
    assert meta.history[-1]["step"] == 14


@both_ways
@pytest.mark.parametrize("scaled", [True, False])
def test_a_plain_step_is_known_before_an_adaptive_optimiser_shows_its_own(scaled, through):
    net = make_net(dropout=0.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    meta = calibrator(net, optimizer=optimizer, through=through, scaled=scaled)
    train(meta, optimizer, 3)
    assert [record["step"] for record in meta.history] == ([1, 2] if scaled else [0, 1, 2])


@both_ways
@pytest.mark.parametrize(
    "objective",
    [
        CrossEntropyLoss(),
        DECELoss(),
        MMCELoss(),
        CrossEntropyLoss() + 0.5 * DECELoss(),
        CrossEntropyLoss() + SBECELoss(),
        CrossEntropyLoss() + SAvUCLoss(),
    ],
    ids=repr,
)
def test_any_loss_is_a_meta_objective(objective, through):
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    for judged in (objective, AfterTemperature(objective)):
        meta = calibrator(hyperparameters=smoothing, objective=judged, through=through)
        found = meta.hypergradient(*batch(12, 1), batch(10, 2))
        assert all(torch.isfinite(g).all() for g in found.values())
        assert found["strength"].abs().max() > 0


@both_ways
@pytest.mark.parametrize("base", [FocalLoss(reduction="none"), FunctionLoss(nn.CrossEntropyLoss(reduction="none"))])
def test_the_base_loss_may_be_the_users_own(base, through):
    net = make_net(dropout=0.0)
    x, y = batch(12, 1)
    options = dict(base_loss=base, head="fc", through=through)
    meta = calibrator(net, UnitwiseL2(net.fc), every=math.inf, **options)
    torch.testing.assert_close(meta.loss(x, y), base(net(x), y).mean())
    stepped = calibrator(net, UnitwiseL2(net.fc), **options)
    stepped.step(x, y)
    assert stepped.history[0]["gradient_norm"] > 0


@both_ways
def test_class_weights_go_with_soft_labels(through):
    weights, (x, y) = torch.tensor([0.2, 1.0, 3.0]), batch(12, 1)
    net = make_net(dropout=0.0)
    base = CrossEntropyLoss(weights, reduction="none")
    options = dict(meta=[batch(9, 2)], base_loss=base, through=through, refine=False)
    meta = calibrator(net, NonUniformLabelSmoothing(K, initial="uniform"), **options)
    torch.testing.assert_close(meta.loss(x, y), base(net(x), y).mean())  # nothing is smoothed yet
    loss = meta.step(x, y)
    soft = meta.hyperparameters.soft_labels(y).detach()
    assert meta.hyperparameters.strength.max().item() > 0.0
    torch.testing.assert_close(loss, nn.functional.cross_entropy(net(x), soft, weight=weights))


class Counted:
    """Batches that count how often one was taken."""

    def __init__(self):
        self.taken = []

    def __iter__(self):
        for number in range(100):
            self.taken.append(number)
            yield batch(10, number)


@both_ways
def test_meta_batches_are_drawn_only_when_due(through):
    held_out = Counted()
    meta = calibrator(meta=held_out, every=4, through=through)
    held_out.taken.clear()
    for x, y in batches(9):
        meta.step(x, y)
    assert held_out.taken == [0, 1, 2]
    assert [record["step"] for record in meta.history] == [0, 4, 8]


@both_ways
def test_every_adapts_adam(through):
    """Constant gradient: after k iterations, one step of every=k moves omega as far as k steps of every=1."""
    moved = []
    for every in (1, 4):
        net = make_net(norm=False, dropout=0.0).double()
        options = dict(meta=[batch(10, 2, dtype=torch.float64)], optimizer=sgd(net, lr=1e-6), through=through)
        meta = calibrator(net, VectorLabelSmoothing(K), every=every, adaptive=False, **options)
        meta.hyperparameters.strength.data.fill_(0.25)
        for _ in range(4):
            meta.step(*batch(12, 1, dtype=torch.float64))
        moved.append(meta.hyperparameters.strength.detach() - 0.25)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-2, atol=1e-6)
    assert moved[0].abs().min() > 1e-3


@both_ways
def test_accumulated_micro_batches_are_one_batch(through):
    x, y = batch(12, 1, dtype=torch.float64)
    found = []
    for pieces in (1, 3):
        net = make_net(norm=False, dropout=0.0).double()
        smoothing = NonUniformLabelSmoothing(K, initial="uniform")
        meta = calibrator(net, smoothing, meta=[batch(10, 2, dtype=torch.float64)], through=through)
        parts = list(zip(x.chunk(pieces), y.chunk(pieces)))
        for number, (x_part, y_part) in enumerate(parts):
            meta.step(x_part, y_part, boundary=number == pieces - 1)
        assert len(meta.history) == 1
        found.append({**state_of(meta.hyperparameters), "norm": torch.tensor(meta.history[0]["gradient_norm"])})
    assert not torch.equal(found[0]["strength"], torch.zeros(K))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("through", "whole"), [("head", False), ("model", False), ("model", True)])
def test_a_penalty_is_there_once_however_a_batch_is_accumulated(reduction, whole, through):
    """The gradient of the loss, and that of the penalty's coefficients; the penalty may be on the whole model."""
    x, y = batch(12, 1, dtype=torch.float64)
    found = []
    for pieces in (1, 3):
        net = make_net(norm=False, dropout=0.0).double()
        options = dict(meta=[batch(10, 2, dtype=torch.float64)], through=through, reduction=reduction)
        meta = calibrator(net, UnitwiseL2(net if whole else net.fc), head=None if whole else "fc", **options)
        for parameter in meta.hyperparameters.parameters():
            parameter.data.fill_(0.5)
        parts = list(zip(x.chunk(pieces), y.chunk(pieces)))
        for number, (x_part, y_part) in enumerate(parts):
            loss = meta.step(x_part, y_part, boundary=number == pieces - 1)
            (loss / pieces if reduction == "mean" else loss).backward()
        found.append((net.fc.weight.grad, net.backbone[0].weight.grad, meta.history[0]["gradient_norm"]))
    for one, three in zip(*found):
        torch.testing.assert_close(one, three, rtol=1e-6, atol=1e-12)


@both_ways
@pytest.mark.parametrize("way", ["step", "steer"])
def test_micro_batches_do_not_outlive_an_error(way, through):
    """The part before a failure belongs to no step; the next step is that of its own batch alone."""
    x, y = batch(12, 1)
    net, other = make_net(dropout=0.0), make_net(dropout=0.0)
    failed, fresh = (calibrator(each, VectorLabelSmoothing(K), through=through) for each in (net, other))

    def advance(meta, x, **options):
        if way == "step":
            return meta.step(x, y, **options)
        with meta.watching():
            loss = torch.nn.functional.cross_entropy(meta.model(x), y)
        return meta.steer(loss, y, **options)

    advance(failed, batch(12, 5)[0], boundary=False)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        advance(failed, x[:, :3])
    net.load_state_dict(other.state_dict())
    advance(failed, x)
    advance(fresh, x)
    assert same(state_of(failed.hyperparameters), state_of(fresh.hyperparameters))
    assert failed.history == fresh.history


@both_ways
def test_the_last_logits_are_those_of_the_training_batch(through):
    net = make_net(dropout=0.0)
    meta = calibrator(net, through=through)
    x, y = batch(12, 1)
    meta.step(x, y)
    torch.testing.assert_close(meta.last_logits, make_net(dropout=0.0)(x).detach())
    assert not meta.last_logits.requires_grad


def test_calibrate_export_and_summary(tmp_path):
    net = make_net()
    optimizer = sgd(net)
    learned = {"t": LearnableTemperature(), "s": VectorLabelSmoothing(K)}
    meta = calibrator(net, learned, optimizer=optimizer, meta=batches(5, seed=500))
    assert meta.summary().endswith("Verdict: no meta step was taken yet.")
    train(meta, optimizer, 5)
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
    assert meta.summary().endswith("\nVerdict: the hyper-parameters move.")


def test_an_export_that_fails_leaves_what_was_there(tmp_path, no_room):
    path = tmp_path / "omega.json"
    meta = calibrator(hyperparameters=VectorLabelSmoothing(K))
    learned = meta.export(path)
    with no_room(), pytest.raises(StorageError, match=r"omega\.json could not be written: File too large"):
        meta.export(path)
    assert json.loads(path.read_text()) == learned
    assert list(tmp_path.iterdir()) == [path]


@both_ways
def test_summary_says_when_omega_does_not_move(through):
    net = make_net()
    optimizer = sgd(net, lr=0.0)
    meta = calibrator(net, optimizer=optimizer, through=through)
    meta.step(*batch(12, 1))
    assert "no gradient reaches the hyper-parameters: is the learning rate 0" in meta.summary()
    optimizer.param_groups[0]["lr"] = 0.1
    wanted = 0.0 if meta.hypergradient(*batch(12, 1), batch(10, 2))["strength"] > 0 else 0.5
    meta.hyperparameters.strength.data.fill_(wanted)
    meta.step(*batch(12, 1))
    assert "every entry of strength is on a bound and stays there." in meta.summary()
    several = [NonUniformLabelSmoothing(K, initial="uniform"), UnitwiseL2(net.fc)]
    meta = calibrator(net, several, lr=0.0, head="fc", through=through)
    meta.hyperparameters.members["0"].strength.data.fill_(0.5)
    meta.step(*batch(12, 1))
    assert "every entry of 0.strength is on a bound" in meta.summary()


def test_history_is_thinned_out():
    meta = calibrator()
    meta._history.most = 8
    for x, y in batches(20):
        meta.step(x, y)
    steps = [record["step"] for record in meta.history]
    assert len(steps) < 8
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] >= 16


@both_ways
@pytest.mark.parametrize("head", [None, "fc"])
def test_remove_takes_the_hooks_off(head, through):
    net = make_net()

    def hooks():
        return [h for m in net.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]

    meta = calibrator(net, head=head, through=through)
    assert len(hooks()) == (0 if through == "model" and not head else 2)
    with meta.watching():
        assert len(hooks()) == (4 if through == "model" else 2)
    meta.remove()
    assert not hooks()
    calibrator(net, head=head, through=through)  # gone at once, and its hooks with it
    gc.collect()
    assert not hooks()


def test_top_level_names():
    for name in ("MetaCalibrator", "OuterStep", "PAPER", "HierarchicalLabelSmoothing", "Finish", "TemperatureScaled"):
        assert getattr(metacal, name) is getattr(metacal.metalearning, name)


@both_ways
def test_by_default_meta_steps_are_dense_at_first_and_sparse_later(through):
    net = make_net(norm=False, dropout=0.0)
    meta = MetaCalibrator(net, sgd(net), [batch(4, 2)], ScalarLabelSmoothing(K), through=through)
    x, y = batch(4, 1)
    with torch.no_grad():
        for _ in range(1100):
            meta.step(x, y)
    steps = [record["step"] for record in meta.history]
    assert steps == [*range(0, 1000, 16), 1008, 1056]


@both_ways
def test_omega_follows_the_model_to_another_device(through):
    """The meta device holds no values; where everything would be is all that can be seen without a second device."""
    options = dict(base_loss=CrossEntropyLoss(torch.ones(K), "none"), through=through)
    meta = calibrator(hyperparameters=HierarchicalLabelSmoothing(K), **options)
    meta.model.to("meta")
    meta._follow_model()
    places = [*meta.hyperparameters.parameters(), *meta._adam.first, *meta._adam.second, *meta._adam.sizes]
    places += [meta._adam.elapsed, meta._adam.taken, meta._adam.skipped, meta._task.base_loss.class_weights]
    assert all(tensor.device.type == "meta" for tensor in places)


def test_an_optimiser_that_shows_nothing_yet_is_waited_for():
    """Adam's scaling is known after its first step: the meta step of the first iteration is left out."""
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    meta = calibrator(net, optimizer=optimizer, every=2)
    train(meta, optimizer, 5)
    assert [record["step"] for record in meta.history] == [2, 4]


def test_a_wrong_way():
    with pytest.raises(InvalidValueError, match="`through` must be one of 'head', 'model', got 'body'"):
        calibrator(through="body")
