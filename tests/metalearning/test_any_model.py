"""Models as they come: buffers in the graph, odd layers, hooks, frozen parts, copies and pickles."""

import copy
import io
import warnings

import pytest
import torch
from tests.metalearning.models import K, batch, make_net
from tests.metalearning.problems import finite_differences, linear_head, problem_of, randomised
from torch import nn

import metacal
from metacal import MetaCalibrator, NonUniformLabelSmoothing, ScalarLabelSmoothing, VectorLabelSmoothing
from metacal.metalearning import LearnableTemperature
from metacal.metalearning.one_step import has_closed_form, one_step


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


def test_a_buffer_in_the_graph_survives_the_meta_step():
    net = Scaled()
    MetaCalibrator(net, "fc", ScalarLabelSmoothing(K), every=1).step(*batch(8, 1), meta=batch(8, 2), lr=0.1).backward()
    assert net.body.weight.grad.abs().max() > 0


@pytest.mark.parametrize("is_frozen", [False, True])
def test_instance_norm_is_left_alone_and_behaves_as_ever(is_frozen):
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    net = nn.Sequential(nn.Unflatten(1, (3, 4)), norm, nn.Flatten(), nn.Linear(12, K))
    norm.train(not is_frozen)
    meta = MetaCalibrator(net, "3", VectorLabelSmoothing(K), every=1)
    x, x_meta, y = torch.randn(8, 12), torch.randn(8, 12), torch.arange(8) % K
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = meta.hypergradient(x, y, meta=(x_meta, y), lr=0.1)["strength"]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    head = problem_of(VectorLabelSmoothing(K), net[3], num_classes=K).head
    with torch.no_grad():
        features, meta_features = (copy.deepcopy(net[:3])(part) for part in (x, x_meta))
    direct = MetaCalibrator(head, head, VectorLabelSmoothing(K), every=1)
    torch.testing.assert_close(found, direct.hypergradient(features, y, meta=(meta_features, y), lr=0.1)["strength"])


def test_a_change_after_the_head_is_noticed():
    net = Scaled(learned_after=True)
    with pytest.warns(UserWarning, match="changes its logits after the head"):
        MetaCalibrator(net, "fc", ScalarLabelSmoothing(K)).loss(*batch(8, 1))
    soft = nn.Sequential(nn.Linear(5, K), nn.LogSoftmax(dim=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MetaCalibrator(soft, "0", ScalarLabelSmoothing(K)).loss(*batch(8, 1))


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


@pytest.mark.parametrize("kind", ["pre-hook", "hook"])
def test_hooks_of_others_are_run_once(kind):
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
        MetaCalibrator(model, model, VectorLabelSmoothing(4), every=1).hypergradient(x, y, meta=(x_meta, y), lr=0.1)
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
    assert found.through[0] == 0.0 and found.direct[0] != 0.0


@pytest.mark.bf16
def test_a_batch_norm_in_a_bfloat16_head():
    net = nn.Sequential(nn.Linear(5, 8), nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, K))).bfloat16()
    meta = MetaCalibrator(net, "1", VectorLabelSmoothing(K), every=1)
    meta.step(*batch(8, 1, dtype=torch.bfloat16), meta=batch(8, 2, dtype=torch.bfloat16), lr=0.1).backward()
    assert meta.history[0]["gradient_norm"] > 0
    assert net[1][0].num_batches_tracked == 1


def test_a_model_with_a_calibrator_can_be_copied_and_pickled():
    net = make_net()
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=1)
    stream = io.BytesIO()
    torch.save(net, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    x, y = batch(8, 1)
    loaded(x), copy.deepcopy(net)(x)
    meta.step(x, y, meta=batch(8, 2), lr=0.1)
    assert len(meta.history) == 1


def test_a_saved_state_is_a_snapshot():
    net = make_net()
    meta = MetaCalibrator(net, net.fc, NonUniformLabelSmoothing(K, initial="uniform"), every=1)
    meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1)
    saved, strength = meta.state_dict(), meta.hyperparameters.strength.detach().clone()
    for seed in range(3):
        meta.step(*batch(8, seed), meta=batch(8, 9), lr=0.1)
    assert not torch.equal(meta.hyperparameters.strength, strength)
    meta.load_state_dict(saved)
    assert torch.equal(meta.hyperparameters.strength, strength) and len(meta.history) == 1


def test_a_shuffling_meta_loader_does_not_touch_the_random_stream():
    net = make_net(dropout=0.0)
    data = torch.utils.data.TensorDataset(*batch(20, 3))
    stream = metacal.data.cycle(torch.utils.data.DataLoader(data, batch_size=5, shuffle=True))
    meta = MetaCalibrator(net, net.fc, ScalarLabelSmoothing(K), every=1)
    before = torch.get_rng_state()
    for _ in range(9):
        meta.step(*batch(8, 1), meta=stream, lr=0.1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_hyperparameter_may_be_partly_fixed():
    net = make_net()
    smoothing = NonUniformLabelSmoothing(K, initial="uniform")
    smoothing.distribution.requires_grad_(False)
    meta = MetaCalibrator(net, net.fc, smoothing, every=1)
    meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1)
    meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1)
    assert torch.equal(smoothing.distribution, torch.full((K, K), 0.5)) and set(
        meta.hypergradient(*batch(8, 1), meta=batch(8, 2), lr=0.1)
    ) == {"strength"}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("how", ["head compiled", "head in place", "mlp head in place"])
def test_a_compiled_head(how):
    net = make_net(dropout=0.0)
    if how == "head compiled":
        net.fc = torch.compile(net.fc, backend="aot_eager")
    elif how == "head in place":
        net.fc.compile(backend="aot_eager")
    else:
        net.fc = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, K))
        net.fc.compile(backend="aot_eager")
    meta = MetaCalibrator(net, net.fc, VectorLabelSmoothing(K), every=1)
    meta.step(*batch(8, 1), meta=batch(8, 2), lr=0.1).backward()
    assert meta.history[0]["gradient_norm"] > 0
