"""The hypergradient of a step on everything that is trained, against autograd's, with second derivatives."""

import pytest
import torch
from tests.metalearning.models import calibrator
from tests.metalearning.problems import GENERAL, HYPERPARAMETERS, D, K, hierarchical, linear_head, randomised
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from metacal import HierarchicalLabelSmoothing, ScalarLabelSmoothing, UnitwiseL2, VectorLabelSmoothing
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, FocalLoss, FunctionLoss
from metacal.metalearning import InnerLoss, LearnableFocalGamma, LearnableTemperature
from metacal.metalearning.hyperparameter import Phase
from metacal.metalearning.model_calls import leaving_no_trace

TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-6}


class Perceptron(nn.Module):
    """Vectors of 5 numbers."""

    def __init__(self, dropout=0.0, act=nn.GELU):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), act(), nn.Dropout(dropout), nn.Linear(16, D), act())
        self.fc = nn.Linear(D, K)

    def forward(self, x):
        return self.fc(self.body(x))

    @staticmethod
    def samples(n, generator):
        return torch.randn(n, 5, generator=generator)


class Convolutions(nn.Module):
    """Images of 8 by 8 in two channels, with batch normalisation."""

    def __init__(self, dropout=0.0, act=nn.SiLU):
        super().__init__()
        first, second = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.Conv2d(6, D, 3, stride=2)
        self.body = nn.Sequential(
            *(first, nn.BatchNorm2d(6), act(), nn.Dropout2d(dropout)),
            *(second, nn.BatchNorm2d(D), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.fc = nn.Linear(D, K)

    def forward(self, x):
        return self.fc(self.body(x))

    @staticmethod
    def samples(n, generator):
        return torch.randn(n, 2, 8, 8, generator=generator)


class Tokens(nn.Module):
    """Sequences of 5 tokens through two layers of a transformer."""

    def __init__(self, dropout=0.0, act=nn.GELU):
        super().__init__()
        self.embedding = nn.Embedding(7, D)
        sizes = dict(nhead=2, dim_feedforward=12, dropout=dropout, activation=act())
        layer = nn.TransformerEncoderLayer(D, **sizes, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.fc = nn.Linear(D, K)

    def forward(self, x):
        return self.fc(self.encoder(self.embedding(x)).mean(dim=1))

    @staticmethod
    def samples(n, generator):
        return torch.randint(7, (n, 5), generator=generator)


MODELS = {"perceptron": Perceptron, "convolutions": Convolutions, "tokens": Tokens}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, betas=(0.8, 0.95), amsgrad=True),
}


def batch(kind, n, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    x = kind.samples(n, generator)
    return (x.to(dtype) if x.is_floating_point() else x), torch.randint(K, (n,), generator=generator)


def trained(model, optimizer, hyperparameters, dtype, *, steps=4, shape=None, **options):
    """A calibrator of a model that has been trained a little, and a training and a held-out batch."""
    kind = MODELS[model]
    torch.manual_seed(0)
    net = kind(**(shape or {})).to(dtype)
    steps_of = OPTIMIZERS[optimizer](net.parameters())
    held_out = batch(kind, 32, 2, dtype)
    options = {"head": "fc", "through": "model", **options}
    meta = calibrator(net, hyperparameters, meta=[held_out], optimizer=steps_of, **options)
    meta._task.overfitting.losses = torch.tensor([0.5, 1.0], dtype=dtype)  # a penalty that follows it acts then
    for seed in range(steps):
        x, y = batch(kind, 32, 10 + seed, dtype)
        steps_of.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        steps_of.step()
    return meta, batch(kind, 32, 1, dtype), held_out


def scaled(optimizer, parameter, gradient):
    """What the optimiser makes of a gradient per unit of its rate, written out: at most 32 for Adam."""
    state, group = optimizer.state[parameter], optimizer.param_groups[0]
    if "exp_avg_sq" not in state:
        return gradient
    moment = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
    corrected = moment / (1.0 - group["betas"][1] ** state["step"].item())
    scale = torch.where(corrected > 0, 1.0 / (corrected.sqrt() + group["eps"]), 0.0)
    return (scale * gradient).clamp(-32.0, 32.0)


def exact(meta, pair, held_out):
    """``d/d omega of -lr * sum(scale * meta-gradient * training gradient(omega))``, and what acts directly."""
    task, net = meta._task, meta.model
    optimizer = task.optimizer.optimizers[0]
    named = {name: p for name, p in net.named_parameters() if p.requires_grad}
    parameters, omega = tuple(named.values()), tuple(task.hyperparameters.omega().values())
    quiet = dict(seed=task.seed + task.meta_steps, device=torch.device("cpu"))
    with leaving_no_trace(net, mode=task.outer.mode, **quiet):
        meta_logits = task.hyperparameters.meta_logits(net(held_out[0]))
    meta_loss = task.objective(meta_logits, held_out[1])
    pulls = torch.autograd.grad(meta_loss, parameters, retain_graph=True, allow_unused=True)
    direct = torch.autograd.grad(meta_loss, omega, allow_unused=True)
    x, y = pair
    with leaving_no_trace(net, mode="train", **quiet):
        logits = net(x)
    inner = task.hyperparameters(InnerLoss.plain(y, K, Phase(overfitting=0.5)))
    penalised = dict(meta._path.penalised.named_parameters())
    value = inner.value(task.base_loss, logits, penalised) / (len(y) if task.reduction == "mean" else 1)
    steps = torch.autograd.grad(value, parameters, create_graph=True, allow_unused=True)
    lr = optimizer.param_groups[0]["lr"]
    change = -lr * sum(
        (scaled(optimizer, p, pull) * step).sum()
        for p, pull, step in zip(parameters, pulls, steps)
        if pull is not None and step is not None
    )
    through = torch.autograd.grad(change, omega, allow_unused=True) if change.requires_grad else [None] * len(omega)
    both = zip(omega, through, direct)
    return [sum((part for part in parts if part is not None), torch.zeros_like(p)) for p, *parts in both]


def compare(meta, pair, held_out, tolerance):
    with sdpa_kernel(SDPBackend.MATH):  # the other has no second derivative
        found, expected = meta.hypergradient(*pair, held_out), exact(meta, pair, held_out)
    assert any(gradient.abs().max() > 0 for gradient in expected)
    for (name, ours), theirs in zip(found.items(), expected):
        error, size = float((ours - theirs).norm()), float(theirs.norm())
        assert error <= tolerance * size, f"{name}: {error / size if size else error:.2e}"


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("model", MODELS)
def test_it_is_autograds(model, dropout, optimizer, dtype):
    meta, *batches = trained(model, optimizer, hierarchical().to(dtype), dtype, shape=dict(dropout=dropout))
    compare(meta, *batches, TOLERANCES[dtype])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_where_units_switch_on_and_off(model, optimizer):
    """A ReLU that switches within the move is seen in part: some percent in float32, where a move is 0.01 long."""
    for dtype, most in ((torch.float32, 0.1), (torch.float64, 1e-6)):
        learned = hierarchical().to(dtype)
        meta, pair, held_out = trained(model, optimizer, learned, dtype, shape=dict(act=nn.ReLU))
        with sdpa_kernel(SDPBackend.MATH):
            found, expected = meta.hypergradient(*pair, held_out), exact(meta, pair, held_out)
        ours, theirs = (torch.cat([part.flatten() for part in parts]) for parts in (found.values(), expected))
        assert float((ours - theirs).norm() / theirs.norm()) <= most
        assert float(ours @ theirs / (ours.norm() * theirs.norm())) >= 0.998


@pytest.mark.parametrize("way", ["rare tokens", "biases before normalisation"])
def test_numbers_that_had_hardly_a_gradient_do_not_drown_the_others(way):
    """Their scale is nearly 1 / eps: they would take up the whole move, and float32 lose the others."""
    found = []
    for dtype in TOLERANCES:
        model, options = ("tokens", {}) if way == "rare tokens" else ("convolutions", dict(mode="eval"))
        meta, pair, held_out = trained(model, "adam", hierarchical().to(dtype), dtype, steps=8, **options)
        optimizer = meta._task.optimizer.optimizers[0]
        if way == "rare tokens":  # as if they had been seen 40,000 steps ago
            optimizer.state[meta.model.embedding.weight]["exp_avg_sq"][4:] *= 0.999**40_000
            pair = (pair[0] % 4, pair[1])
        gradients = meta.hypergradient(*pair, held_out).values()
        found.append(torch.cat([gradient.flatten() for gradient in gradients]).double())
    most = 1e-3 if way == "rare tokens" else 0.15
    assert float((found[0] - found[1]).norm() / found[1].norm()) < most
    assert float(found[0] @ found[1] / (found[0].norm() * found[1].norm())) > 0.99


CALIBRATED = AfterTemperature(CrossEntropyLoss() + 0.5 * DECELoss())
"""By cross-entropy alone the terms of one strength happen to cancel to a part in a thousand on these samples."""


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [*HYPERPARAMETERS, *GENERAL])
def test_for_every_hyperparameter(name, model, dtype):
    meta, *batches = trained(
        model, "adam", {**HYPERPARAMETERS, **GENERAL}[name]().to(dtype), dtype, objective=CALIBRATED
    )
    compare(meta, *batches, TOLERANCES[dtype])


def several():
    return {
        "smoothing": hierarchical(),
        "more": randomised(ScalarLabelSmoothing(K)),
        "gamma": randomised(LearnableFocalGamma(K)),
        "temperature": randomised(LearnableTemperature(in_training=True)),
        "l2": randomised(UnitwiseL2(linear_head())),
    }


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_for_several_at_once(reduction, dtype):
    meta, pair, held_out = trained("perceptron", "adam", several(), dtype, reduction=reduction, objective=CALIBRATED)
    compare(meta, pair, held_out, 10.0 * TOLERANCES[dtype])  # single numbers among them nearly cancel
    found, expected = meta.hypergradient(*pair, held_out).values(), exact(meta, pair, held_out)
    ours, theirs = (torch.cat([gradient.flatten() for gradient in each]) for each in (found, expected))
    assert (ours - theirs).norm() <= TOLERANCES[dtype] * theirs.norm()


def margin(logits, targets):
    """A loss of somebody's own: a soft hinge of the true class's margin."""
    true = logits.gather(1, targets.unsqueeze(1))
    return nn.functional.softplus(1.0 + logits - true).sum(dim=1)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    "options",
    [
        dict(base_loss=FocalLoss(2.0, reduction="none")),
        dict(base_loss=FunctionLoss(margin)),
        dict(base_loss=CrossEntropyLoss(torch.tensor([0.2, 1.0, 3.0, 0.5]), reduction="none")),
        dict(objective=FunctionLoss(nn.functional.multi_margin_loss)),
        dict(objective=AfterTemperature(CrossEntropyLoss() + 0.5 * DECELoss())),
        dict(mode="eval"),
        dict(scaled=True, per_unit_step=False),
    ],
    ids=["focal", "own", "weighted", "own objective", "refined", "eval", "per step"],
)
def test_for_other_losses_and_settings(options, dtype):
    learned = randomised(LearnableTemperature(in_training=True))
    meta, *batches = trained("perceptron", "adam", learned, dtype, **options)
    meta._task.base_loss.to(dtype)
    compare(meta, *batches, TOLERANCES[dtype])
    if "base_loss" not in options:
        meta, *batches = trained("convolutions", "momentum", randomised(VectorLabelSmoothing(K)), dtype, **options)
        compare(meta, *batches, TOLERANCES[dtype])


def test_for_a_penalty_on_the_whole_model():
    torch.manual_seed(0)
    penalty = randomised(UnitwiseL2(Perceptron()), -0.2, 0.2)
    meta, *batches = trained("perceptron", "adam", penalty, torch.float64, head=None)
    compare(meta, *batches, 1e-6)


def test_without_the_optimisers_scale_it_is_that_of_plain_steps():
    meta, *batches = trained("perceptron", "adam", HierarchicalLabelSmoothing(K), torch.float64, scaled=False)
    plain, *_ = trained("perceptron", "sgd", HierarchicalLabelSmoothing(K), torch.float64)
    plain.model.load_state_dict(meta.model.state_dict())
    for name, found in meta.hypergradient(*batches[0], batches[1]).items():
        expected = plain.hypergradient(*batches[0], batches[1])[name] * 0.1  # the learning rates are .01 and .1
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-14)


def test_with_a_linear_model_it_is_the_heads_small_step():
    """Where the head is all there is, and with the same scaling, both ways compute one thing."""
    torch.manual_seed(0)
    net = nn.Linear(5, K).double()
    pair, held_out = (batch(Perceptron, 16, seed, torch.float64) for seed in (1, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(pair[0]), pair[1]).backward()
    optimizer.step()
    found = [
        calibrator(net, hierarchical(), meta=[held_out], optimizer=optimizer, through=through).hypergradient(
            *pair, held_out
        )
        for through in ("head", "model")
    ]
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-6, atol=1e-10)


def test_nothing_to_follow_is_no_gradient():
    """A meta-gradient of 0 gives 0, not 0 / 0."""
    meta, *batches = trained("perceptron", "sgd", ScalarLabelSmoothing(K), torch.float32)
    meta._task.objective = FunctionLoss(lambda logits, targets: (0.0 * logits).sum())
    assert meta.hypergradient(*batches[0], batches[1])["strength"] == 0.0
