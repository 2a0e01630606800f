"""Models as they come: precisions, shapes, odd layers, hooks, frozen parts, compilers and wrappers."""

import copy
import math
import random
import warnings

import numpy as np
import pytest
import torch
from tests.metalearning.models import K, batch, batches, both_ways, calibrator, make_net, same, sgd, state_of
from tests.metalearning.problems import finite_differences, linear_head, problem_of, randomised
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metacal import NonUniformLabelSmoothing, VectorLabelSmoothing
from metacal.metalearning import LearnableTemperature
from metacal.metalearning.through_head import has_closed_form, one_step


class Scaled(nn.Module):
    """Multiplies by a buffer, which autograd saves."""

    def __init__(self, learned_after=False):
        super().__init__()
        self.body = nn.Linear(5, 8)
        self.register_buffer("scale", torch.full((8,), 2.0))
        self.fc = nn.Linear(8, K)
        self.after = nn.Parameter(torch.ones(())) if learned_after else None

    def forward(self, x):
        logits = self.fc(self.body(x) * self.scale)
        return logits if self.after is None else logits * (1.0 + self.after)


@both_ways
@pytest.mark.parametrize("way", ["step", "steer"])
def test_a_buffer_in_the_graph_survives_the_meta_step(way, through):
    net = Scaled()
    meta = calibrator(net, through=through)
    x, y = batch(8, 1)
    if way == "step":
        meta.step(x, y).backward()
    else:
        with meta.watching():
            loss = nn.functional.cross_entropy(net(x), y)
        meta.steer(loss, y)
        loss.backward()
    assert net.body.weight.grad.abs().max() > 0
    assert len(meta.history) == 1


class DropsLayers(nn.Module):
    """Leaves out layers by random numbers that are not torch's."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))
        self.fc = nn.Linear(5, K)

    def forward(self, x):
        for layer in self.layers:
            if self.draw() < 0.5:
                x = x + torch.tanh(layer(x))
        return self.fc(x)


@both_ways
@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_random_numbers_of_python_and_numpy(draw, through):
    """The same ones in all passes of a meta step, and the caller's stay as they are."""
    torch.manual_seed(0)
    net = DropsLayers(draw).double()
    x, y = batch(8, 1, dtype=torch.float64)
    held_out = batch(8, 2, dtype=torch.float64)
    meta = calibrator(net, VectorLabelSmoothing(K), meta=[held_out], through=through)
    random.seed(3)
    np.random.seed(3)
    expected = [draw() for _ in range(3)]
    random.seed(3)
    np.random.seed(3)
    first, second = (meta.hypergradient(x, y, held_out)["strength"] for _ in range(2))
    assert [draw() for _ in range(3)] == expected
    assert first.abs().max() > 0
    torch.testing.assert_close(first, second, rtol=1e-9, atol=0.0)


@both_ways
@pytest.mark.parametrize("is_frozen", [False, True])
def test_instance_norm_is_left_alone_and_behaves_as_ever(is_frozen, through):
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    net = nn.Sequential(nn.Unflatten(1, (3, 4)), norm, nn.Flatten(), nn.Linear(12, K))
    norm.train(not is_frozen)
    x, x_meta, y = torch.randn(8, 12), torch.randn(8, 12), torch.arange(8) % K
    meta = calibrator(net, VectorLabelSmoothing(K), meta=[(x_meta, y)], through=through)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = meta.hypergradient(x, y, (x_meta, y))["strength"]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with torch.no_grad():
        features, meta_features = (copy.deepcopy(net[:3])(part) for part in (x, x_meta))
    direct = calibrator(net[3], VectorLabelSmoothing(K), meta=[(meta_features, y)], through=through)
    expected = direct.hypergradient(features, y, (meta_features, y))["strength"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_a_change_after_the_head_is_noticed():
    net = Scaled(learned_after=True)
    with pytest.warns(UserWarning, match="changes its logits after the head"):
        calibrator(net, head="fc").loss(*batch(8, 1))
    soft = nn.Sequential(nn.Linear(5, K), nn.LogSoftmax(dim=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator(soft, head="0").loss(*batch(8, 1))


def hooked(kind):
    head = linear_head()
    if kind == "pre-hook":
        head.register_forward_pre_hook(lambda module, args: (3.0 * args[0],))
    elif kind == "hook":
        head.register_forward_hook(lambda module, args, output: 3.0 * output)
    elif kind == "old weight norm":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head = nn.utils.weight_norm(head)
    elif kind == "one more parameter":
        head.extra = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    elif kind == "frozen bias":
        head.bias.requires_grad_(False)
    return head


@pytest.mark.parametrize("kind", ["pre-hook", "hook", "old weight norm", "one more parameter"])
def test_heads_that_are_not_quite_linear_take_the_general_form(kind):
    head = hooked(kind)
    problem = problem_of(randomised(VectorLabelSmoothing(4)), head)
    assert not has_closed_form(problem, problem.inner())
    for ours, numeric in zip(one_step(problem).total, finite_differences(problem)):
        torch.testing.assert_close(ours, numeric, rtol=1e-5, atol=1e-8)


@both_ways
@pytest.mark.parametrize("kind", ["pre-hook", "hook"])
def test_hooks_of_others_are_run_once(kind, through):
    """The calibrator on a hooked head equals one on the same head with the hook's effect written out."""

    class Explicit(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear_head()

        def forward(self, x):
            return self.inner(3.0 * x) if kind == "pre-hook" else 3.0 * self.inner(x)

    head, explicit = hooked(kind), Explicit()
    x, y, x_meta = torch.randn(8, 6).double(), torch.arange(8) % 4, torch.randn(8, 6).double()
    found = [
        calibrator(model, VectorLabelSmoothing(4), meta=[(x_meta, y)], head=model, through=through).hypergradient(
            x, y, (x_meta, y)
        )
        for model in (head, explicit)
    ]
    torch.testing.assert_close(found[0]["strength"], found[1]["strength"])


def test_parameters_that_are_not_trained_are_not_stepped():
    head = hooked("frozen bias")
    problem = problem_of(randomised(VectorLabelSmoothing(4)), head)
    without_bias = linear_head(bias=False)
    without_bias.weight.data = head.weight.data.clone()
    moved_bias = nn.Sequential(without_bias, Shift(head.bias.detach()))
    expected = problem_of(randomised(VectorLabelSmoothing(4)), moved_bias)
    torch.testing.assert_close(one_step(problem).total[0], one_step(expected).total[0])


class Shift(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x + self.by


def test_dropout_in_the_head_does_not_leak_into_the_direct_gradient():
    head = nn.Sequential(nn.Dropout(0.5), linear_head())
    problem = problem_of(LearnableTemperature(), head, lr=1e-3)
    found = one_step(problem)
    assert found.through[0] == 0.0
    assert found.direct[0] != 0.0


@pytest.mark.bf16
def test_a_batch_norm_in_a_bfloat16_head():
    net = nn.Sequential(nn.Linear(5, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, K))).bfloat16()
    held_out = [batch(8, 2, dtype=torch.bfloat16)]
    meta = calibrator(net, VectorLabelSmoothing(K), head="1", meta=held_out)
    meta.step(*batch(8, 1, dtype=torch.bfloat16)).backward()
    assert meta.history[0]["gradient_norm"] > 0
    assert net[1][0].num_batches_tracked == 1


@both_ways
def test_a_shuffling_meta_loader_does_not_touch_the_random_stream(through):
    net = make_net(dropout=0.0)
    loader = DataLoader(TensorDataset(*batch(20, 3)), batch_size=5, shuffle=True)
    before = torch.get_rng_state()
    meta = calibrator(net, meta=loader, through=through)
    for _ in range(9):
        meta.step(*batch(8, 1))
    assert torch.equal(torch.get_rng_state(), before)


@both_ways
def test_a_hyperparameter_may_be_partly_fixed(through):
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    smoothing.distribution.requires_grad_(False)
    meta = calibrator(hyperparameters=smoothing, through=through)
    meta.step(*batch(8, 1))
    meta.step(*batch(8, 1))
    assert torch.equal(smoothing.distribution, torch.full((K, K), 0.5))
    assert set(meta.hypergradient(*batch(8, 1), batch(8, 2))) == {"strength"}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@both_ways
@pytest.mark.parametrize("how", ["head compiled", "head in place", "mlp head in place"])
def test_a_compiled_head(how, through):
    net = make_net(dropout=0.0)
    if how == "head compiled":
        net.fc = torch.compile(net.fc, backend="aot_eager")
    elif how == "head in place":
        net.fc.compile(backend="aot_eager")
    else:
        net.fc = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, K))
        net.fc.compile(backend="aot_eager")
    meta = calibrator(net, VectorLabelSmoothing(K), head=net.fc, through=through)
    loss = meta.step(*batch(8, 1))
    loss.backward()
    assert meta.history[0]["gradient_norm"] > 0
    assert net.backbone[0].weight.grad.abs().max() > 0


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # the compiler's own
@both_ways
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model(backend, through):
    net, twin = make_net(dropout=0.0), make_net(dropout=0.0)
    x, y = batch(12, 1)
    compiled = torch.compile(net, backend=backend)
    results = []
    for model, own in ((compiled, net), (twin, twin)):
        meta = calibrator(model, NonUniformLabelSmoothing(K, initial="uniform"), through=through)
        assert meta.output_layer is own.fc
        loss = meta.step(x, y)
        loss.backward()
        results.append((loss.item(), meta.hyperparameters.strength.detach().clone(), own.fc.weight.grad.clone()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    torch.testing.assert_close(results[0][1], results[1][1])
    torch.testing.assert_close(results[0][2], results[1][2])
    assert same(state_of(net), state_of(twin))


def test_a_model_compiled_as_one_graph():
    """Without a hook in it, at which the compiler would stop."""
    net = make_net(dropout=0.0)
    meta = calibrator(torch.compile(net, backend="eager", fullgraph=True), through="model")
    meta.step(*batch(12, 1)).backward()
    assert net.fc.weight.grad.abs().max() > 0


@both_ways
@pytest.mark.parametrize("precision", ["32-true", "64-true", pytest.param("bf16-mixed", marks=pytest.mark.bf16)])
def test_a_fabric_model(precision, through):
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    net = make_net()
    model, optimizer = fabric.setup(net, sgd(net))
    meta = calibrator(model, optimizer=optimizer, through=through)
    assert meta.output_layer is net.fc
    loss = meta.step(*batch(12, 1))
    fabric.backward(loss)
    optimizer.step()
    assert meta.history[0]["gradient_norm"] > 0


@pytest.mark.bf16
@both_ways
@pytest.mark.parametrize("steers", [False, True])
def test_a_model_of_accelerates_in_mixed_precision(through, steers):
    """It converts what ``forward`` returns, and turns autocast on inside of it."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        net, dtypes = make_net(dropout=0.0), []
        model, optimizer = accelerator.prepare(net, sgd(net))
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    forward = model.forward
    meta = calibrator(model, VectorLabelSmoothing(K), optimizer=optimizer, through=through)
    assert meta.output_layer is net.fc
    net.backbone[0].register_forward_hook(lambda layer, given, output: dtypes.append(output.dtype))
    x, y = batch(12, 1)
    if steers:
        with meta.watching():
            raw = net._original_forward(x)  # inside of it, as models of Transformers compute their loss
            loss = nn.functional.cross_entropy(raw, y)
        meta.steer(loss, y, x=x)
    else:
        loss = meta.step(x, y)
    loss.backward()
    assert meta.history[0]["gradient_norm"] > 0
    assert net.fc.weight.grad.norm() > 0
    assert dtypes.count(torch.float32) == (2 if through == "model" else 0) + steers  # the moved passes
    assert model.forward == forward


@pytest.mark.bf16
@both_ways
def test_bfloat16_autocast_and_clipping_and_schedule(through):
    net = make_net()
    optimizer = sgd(net)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    meta = calibrator(net, smoothing, meta=batches(6, seed=500), optimizer=optimizer, through=through)
    for x, y in batches(6):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = meta.step(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    assert loss.dtype == torch.float32
    assert math.isfinite(loss.item())
    assert [record["inner_step"] for record in meta.history] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert meta.skipped == 0


@pytest.mark.bf16
@both_ways
def test_under_autocast_the_hypergradient_is_nearly_that_of_float32(through):
    meta = calibrator(make_net(dropout=0.0), VectorLabelSmoothing(K), through=through)
    exact = meta.hypergradient(*batch(12, 1), batch(10, 2))["strength"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = meta.hypergradient(*batch(12, 1), batch(10, 2))["strength"]
    assert not torch.equal(found, exact)
    torch.testing.assert_close(found, exact, rtol=0.1, atol=0.05 * float(exact.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.bf16)])
def test_models_in_other_precisions(dtype):
    net = make_net(norm=False).to(dtype)
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    meta = calibrator(net, smoothing, meta=[batch(10, 2, dtype=dtype)])
    meta.step(*batch(12, 1, dtype=dtype)).backward()
    assert meta.hyperparameters.strength.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert meta.skipped == 0
    assert meta.history[0]["gradient_norm"] > 0


@both_ways
@pytest.mark.parametrize("shape", ["one_column", "flat"])
def test_binary_models_with_one_logit(shape, through):
    class Flat(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x).squeeze(1) if shape == "flat" else self.net(x)

    net = make_net(outputs=1, dropout=0.0)
    held_out = [batch(10, 2, classes=2)]
    head = net.fc if through == "head" else None
    meta = calibrator(Flat(net), NonUniformLabelSmoothing(2), meta=held_out, head=head, through=through)
    x, y = batch(12, 1, classes=2)
    loss = meta.step(x, y)
    meta.hyperparameters.strength.data.zero_()
    plain = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y.float())
    torch.testing.assert_close(meta.loss(x, y), plain)
    assert math.isfinite(loss.item())
    assert meta.history[0]["gradient_norm"] > 0


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, K)

    def forward(self, left, right=None):
        return {"logits": self.fc(left + right)}


@both_ways
def test_inputs_may_be_tuples_or_dictionaries(through):
    torch.manual_seed(0)
    (x, y), (x_meta, y_meta) = batch(12, 1), batch(10, 2)
    by_name = {"left": x_meta, "right": x_meta, "labels": y_meta}
    found = []
    for held_out in ([((x_meta, x_meta), y_meta)], [(x_meta, x_meta, y_meta)], [by_name]):
        torch.manual_seed(0)
        meta = calibrator(Two(), VectorLabelSmoothing(K), meta=held_out, through=through)
        arguments = {"left": x, "right": x} if held_out == [by_name] else (x, x)
        found.append(meta.hypergradient(arguments, y, next(meta.stream)))
        assert math.isfinite(meta.step(arguments, y).item())
        assert len(meta.history) == 1
    assert same(found[0], found[1])
    assert same(found[0], found[2])
    assert found[0]["strength"].abs().max() > 0


@both_ways
def test_a_frozen_backbone_leaves_only_the_head_to_train(through):
    net = make_net(dropout=0.0)
    net.backbone.requires_grad_(False)
    meta = calibrator(net, NonUniformLabelSmoothing(K, initial="uniform"), through=through)
    meta.step(*batch(12, 1)).backward()
    assert all(p.grad is None for p in net.backbone.parameters())
    assert net.fc.weight.grad.abs().max() > 0
    assert meta.history[0]["gradient_norm"] > 0


def test_with_a_frozen_backbone_both_ways_are_one():
    net = make_net(dropout=0.0).double()
    net.backbone.requires_grad_(False)
    data = dict(meta=[batch(10, 2, dtype=torch.float64)], optimizer=sgd(net))
    found = [
        calibrator(net, VectorLabelSmoothing(K), through=through, **data).hypergradient(
            *batch(12, 1, dtype=torch.float64), data["meta"][0]
        )["strength"]
        for through in ("head", "model")
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-12)


class LowRank(nn.Module):
    """A frozen layer and two small factors that are trained."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, layer.in_features, dtype=layer.weight.dtype))
        self.up = nn.Parameter(torch.randn(layer.out_features, 2, dtype=layer.weight.dtype))

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


@pytest.mark.parametrize("where", ["body", "head"])
def test_adapters_alone_are_trained(where):
    """Low-rank factors beside frozen layers: there is no linear head to step, so steps are those of the factors."""
    net = make_net(norm=False, dropout=0.0).requires_grad_(False)
    if where == "head":
        net.fc = LowRank(net.fc)
    else:
        net.backbone[0] = LowRank(net.backbone[0])
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    meta = calibrator(net, VectorLabelSmoothing(K), optimizer=torch.optim.AdamW(trained, lr=0.01))
    assert meta.through == "model"
    for x, y in batches(3):
        meta._task.optimizer.optimizers[0].zero_grad()
        meta.step(x, y).backward()
        meta._task.optimizer.optimizers[0].step()
    assert len(meta.history) == 2
    assert meta.history[-1]["gradient_norm"] > 0
    assert all(p.grad is None for p in net.parameters() if not p.requires_grad)


def test_an_optimiser_of_a_part_steps_that_part():
    """Parameters that require a gradient and are not in the optimiser are not moved."""
    net = make_net(norm=False, dropout=0.0).double()
    data = dict(meta=[batch(10, 2, dtype=torch.float64)])
    partly = torch.optim.SGD(net.fc.parameters(), lr=0.1)
    pair = batch(12, 1, dtype=torch.float64)
    found = [
        calibrator(net, VectorLabelSmoothing(K), optimizer=optimizer, through=through, **data).hypergradient(
            *pair, data["meta"][0]
        )["strength"]
        for optimizer, through in ((partly, "model"), (partly, "head"), (sgd(net), "model"))
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-12)
    assert not torch.allclose(found[0], found[2], rtol=1e-2)
    without_bias = torch.optim.SGD([net.fc.weight], lr=0.1)
    found = [
        calibrator(net, VectorLabelSmoothing(K), optimizer=without_bias, through=through, **data).hypergradient(
            *pair, data["meta"][0]
        )["strength"]
        for through in ("head", "model")
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-12)


def test_the_whole_model_as_head_steps_every_parameter():
    net = make_net(norm=False, dropout=0.0).double()
    (x, y), pair = batch(12, 1, dtype=torch.float64), batch(10, 2, dtype=torch.float64)
    ways = {"whole": dict(head=net), "head": dict(head=net.fc), "model": dict(through="model")}
    found = {
        name: calibrator(net, VectorLabelSmoothing(K), meta=[pair], lr=0.5, **way).hypergradient(x, y, pair)["strength"]
        for name, way in ways.items()
    }
    assert not torch.allclose(found["whole"], found["head"], rtol=1e-3)
    torch.testing.assert_close(found["whole"], found["model"], rtol=1e-6, atol=1e-12)


@both_ways
def test_token_heads_count_every_position(through):
    """A linear head over (n, tokens, d) works on rows; labels may keep their shape."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, K))
    x, y, x_meta, y_meta = (
        torch.randn(4, 3, 5),
        torch.randint(K, (4, 3)),
        torch.randn(2, 3, 5),
        torch.randint(K, (2, 3)),
    )
    meta = calibrator(net, VectorLabelSmoothing(K), meta=[(x_meta, y_meta)], through=through, memory=512)
    flat = meta.hypergradient(x.view(-1, 5), y.view(-1), (x_meta.view(-1, 5), y_meta.view(-1)))
    shaped = meta.hypergradient(x, y, (x_meta, y_meta))
    torch.testing.assert_close(flat["strength"], shaped["strength"], rtol=1e-3, atol=1e-6)
    for _ in range(3):
        assert math.isfinite(meta.step(x, y).item())
    assert len(meta.state_dict()["memory"]["labels"]) == 18


def test_several_labels_a_sample_are_not_remembered():
    """A head that is given sequences: features and labels differ in number, and cannot be cut alike."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    x, y = torch.randn(8, 10, 6), torch.randint(4, (8, 10))
    held_out = [(torch.randn(8, 10, 6), y) for _ in range(10)]
    meta = calibrator(net, VectorLabelSmoothing(4), meta=held_out, head=net, memory=512)
    for _ in range(10):
        loss = meta.step(x, y)
    assert torch.isfinite(loss)
    assert meta.state_dict()["memory"] == {}


def test_a_model_whose_parameters_are_too_coarse_to_be_moved_a_little():
    net = make_net(norm=False).bfloat16()
    meta = calibrator(net, meta=[batch(10, 2, dtype=torch.bfloat16)], through="model")
    with pytest.raises(TypeError, match=r"`through` must be 'head' for a model whose parameters are torch.bfloat16"):
        meta.step(*batch(12, 1, dtype=torch.bfloat16))


class WithExtras(nn.Module):
    """Returns more than logits; without a head, nobody can say which they are."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(5, 8), nn.Linear(8, K)

    def forward(self, x):
        features = torch.relu(self.body(x))
        return features, self.fc(features)


@both_ways
def test_a_named_head_says_where_the_logits_are(through):
    torch.manual_seed(0)
    net = WithExtras()
    meta = calibrator(net, VectorLabelSmoothing(K), head="fc", through=through)
    x, y = batch(12, 1)
    torch.testing.assert_close(meta.loss(x, y), nn.functional.cross_entropy(net(x)[1], y))
    meta.step(x, y).backward()
    assert meta.history[0]["gradient_norm"] > 0
    assert net.body.weight.grad.abs().max() > 0
    assert meta.finish().samples == 10
    with pytest.raises(TypeError, match="`model` must return logits, as a tensor or under that name, got tuple"):
        calibrator(WithExtras())


@both_ways
def test_unused_embeddings_do_not_drown_the_rest(through):
    """Tokens that occur in held-out samples alone have no second moment: 1 / eps would outweigh all the others."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.EmbeddingBag(20, 6), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, K))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    x, y = torch.randint(10, (16, 5)), torch.randint(K, (16,))
    held_out = (torch.randint(20, (16, 5)), torch.randint(K, (16,)))
    meta = calibrator(net, VectorLabelSmoothing(K), meta=[held_out], optimizer=optimizer, through=through)
    for _ in range(3):
        optimizer.zero_grad()
        meta.step(x, y).backward()
        optimizer.step()
    with_all = meta.hypergradient(x, y, held_out)["strength"]
    double = copy.deepcopy(net).double()
    copied = torch.optim.Adam(double.parameters(), lr=0.01)
    copied.load_state_dict(optimizer.state_dict())
    exact = calibrator(double, VectorLabelSmoothing(K), meta=[held_out], optimizer=copied, through=through)
    exact.hyperparameters.load_state_dict(meta.hyperparameters.state_dict())
    expected = exact.hypergradient(x, y, held_out)["strength"]
    assert expected.abs().max() > 0
    torch.testing.assert_close(with_all.double(), expected, rtol=2e-2, atol=1e-3 * float(expected.abs().max()))
