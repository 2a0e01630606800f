"""What optimisers make of a gradient: read off their states, and held against the steps that they take."""

import warnings

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net, train
from torch import nn

from metacal import VectorLabelSmoothing
from metacal.errors import InvalidTypeError, InvalidValueError, MetacalWarning
from metacal.metalearning.optimizer_step import OptimizerStep, scaled

SIZES = torch.tensor([[1e-3, 0.1, 2.0], [5.0, 0.02, 0.5]])
"""How large the gradients of six numbers are, at all times."""

NO_MOMENTUM = dict(betas=(0.0, 0.9))
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(momentum=0.9, nesterov=True)),
    "asgd": (torch.optim.ASGD, dict(lambd=0.0)),
    "adam": (torch.optim.Adam, NO_MOMENTUM),
    "adam fused": (torch.optim.Adam, dict(fused=True, **NO_MOMENTUM)),
    "adam foreach": (torch.optim.Adam, dict(foreach=True, **NO_MOMENTUM)),
    "adam amsgrad": (torch.optim.Adam, dict(amsgrad=True, **NO_MOMENTUM)),
    "adam with a large epsilon": (torch.optim.Adam, dict(eps=0.1, **NO_MOMENTUM)),
    "adamw": (torch.optim.AdamW, dict(weight_decay=0.0, **NO_MOMENTUM)),
    "adamw fused": (torch.optim.AdamW, dict(weight_decay=0.0, fused=True, amsgrad=True, **NO_MOMENTUM)),
    "nadam": (torch.optim.NAdam, NO_MOMENTUM),
    "radam": (torch.optim.RAdam, NO_MOMENTUM),
    "rmsprop": (torch.optim.RMSprop, dict(alpha=0.9)),
    "rmsprop centred": (torch.optim.RMSprop, dict(alpha=0.99, centered=True)),
    "rmsprop foreach": (torch.optim.RMSprop, dict(alpha=0.9, foreach=True)),
    "adagrad": (torch.optim.Adagrad, {}),
    "adagrad fused": (torch.optim.Adagrad, dict(fused=True)),
    "adamax": (torch.optim.Adamax, NO_MOMENTUM),
    "adadelta": (torch.optim.Adadelta, dict(rho=0.9)),
}
PLAIN = ("sgd", "asgd")
WAITED_FOR = [name for name in OPTIMIZERS if name not in PLAIN]
UNKNOWN = {
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1),
    "muon": lambda p: torch.optim.Muon(p, lr=0.1),
}


def make(name, parameters, lr=0.01):
    kind, options = OPTIMIZERS[name]
    return kind(parameters, lr=lr, **options)


def parameter(seed=0):
    return nn.Parameter(torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)))


def take_steps(optimizer, p, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        p.grad = SIZES * torch.randn(2, 3, generator=generator).sign()
        optimizer.step(lambda: torch.zeros(()))


def momentum_of(name, optimizer, p):
    """What momentum adds to a step of SGD's, whatever the gradient: it is left out."""
    return 0.9 * 0.9 * optimizer.state[p]["momentum_buffer"] if name == "sgd" else 0.0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_next_step_is_rate_times_scale_times_gradient(name):
    """Where gradients have had one size for long, so that this one changes no moment."""
    p = parameter()
    optimizer = make(name, [p])
    take_steps(optimizer, p, 400)
    steps = OptimizerStep(optimizer)
    gradient = SIZES * torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    found = steps.lr * steps.scales()[p] * gradient
    before, added = p.detach().clone(), momentum_of(name, optimizer, p)
    p.grad = gradient.clone()
    optimizer.step()
    factor = 1.9 if name == "sgd" else 1.0  # Nesterov's, of the gradient at once
    expected = before - p.detach() - optimizer.param_groups[0]["lr"] * added
    tolerance = 0.03 if name == "rmsprop centred" else 0.01
    torch.testing.assert_close(factor * found, expected, rtol=tolerance, atol=2e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_before_the_first_step(name):
    """An adaptive optimiser does not show its scale yet; asked for, it is a plain one."""
    p = parameter()
    optimizer = make(name, [p])
    steps = OptimizerStep(optimizer)
    assert steps.is_known == (name in PLAIN)
    assert torch.equal(torch.as_tensor(steps.scales()[p]).expand(2, 3), torch.ones(2, 3))
    take_steps(optimizer, p, 1)
    assert steps.is_known
    assert torch.as_tensor(steps.scales()[p]).isfinite().all()


def test_scales_of_adam_after_one_step_are_written_out():
    p = parameter()
    optimizer = torch.optim.Adam([p], lr=0.01)
    take_steps(optimizer, p, 1)
    torch.testing.assert_close(OptimizerStep(optimizer).scales()[p], 1.0 / (SIZES + 1e-8), rtol=1e-6, atol=0.0)


def test_no_number_goes_further_than_adam_would_take_it():
    """A gradient that comes as a surprise: with it among the moments, the step is 1 / sqrt(1 - beta) long at most."""
    p = nn.Parameter(torch.zeros(2, 3))
    optimizer = torch.optim.Adam([p], lr=0.01, betas=(0.0, 0.999))
    take_steps(optimizer, p, 200)
    surprise = 1e5 * SIZES * torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    found = scaled(OptimizerStep(optimizer).scales()[p], surprise)
    assert torch.equal(found, 32.0 * surprise.sign())
    before = p.detach().clone()
    p.grad = surprise
    optimizer.step()
    assert ((before - p.detach()).abs() <= 0.01 * 32.0).all()
    assert scaled(1.0, surprise) is surprise
    assert torch.equal(scaled(0.5, surprise), 0.5 * surprise)
    broken = scaled(torch.ones(2), torch.tensor([torch.inf, torch.nan]))
    assert not broken.isfinite().any(), "what is not finite is not hidden"


def test_without_adaptation_a_group_moves_as_one():
    p = parameter()
    optimizer = torch.optim.Adam([p], lr=0.01)
    take_steps(optimizer, p, 3)
    assert OptimizerStep(optimizer).scales(adaptive=False) == {p: 1.0}


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_groups_have_rates_of_their_own(kind):
    fast, slow, frozen = parameter(0), parameter(1), parameter(2).requires_grad_(False)
    groups = [{"params": [slow], "lr": 0.01}, {"params": [fast, frozen], "lr": 0.1}, {"params": []}]
    steps = OptimizerStep(kind(groups, lr=0.5))
    steps.optimizers[0].param_groups[2]["lr"] = 0.0
    assert steps.lr == 0.1
    assert steps.parameters() == [slow, fast]
    assert steps.scales() == {slow: pytest.approx(0.1), fast: pytest.approx(1.0)}
    for p in (fast, slow):
        p.grad = SIZES.clone()
    steps.optimizers[0].step()
    scales = {p: torch.as_tensor(scale) for p, scale in steps.scales().items()}
    torch.testing.assert_close(10.0 * scales[slow], scales[fast])
    assert steps.is_known, "a group without parameters has nothing to show"


def test_several_optimisers_train_parts_of_a_model():
    first, second = parameter(0), parameter(1)
    steps = OptimizerStep([torch.optim.Adam([first], lr=0.01), torch.optim.SGD([second], lr=0.1)])
    assert not steps.is_known
    assert steps.lr == 0.1
    take_steps(steps.optimizers[0], first, 2)
    assert steps.is_known
    scales = steps.scales()
    assert scales[second] == 1.0
    torch.testing.assert_close(scales[first], 0.1 / (SIZES + 1e-8), rtol=1e-5, atol=0.0)


def test_schedules_are_followed():
    p = parameter()
    optimizer = torch.optim.SGD([p], lr=0.1)
    steps, schedule = OptimizerStep(optimizer), torch.optim.lr_scheduler.StepLR(optimizer, 1)
    take_steps(optimizer, p, 1)
    schedule.step()
    assert steps.lr == pytest.approx(0.01)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.3)
    assert steps.lr == pytest.approx(0.3)
    optimizer.param_groups[0]["lr"] = 0.0
    assert steps.lr == 0.0
    assert steps.scales() == {p: 1.0}


def test_a_rate_that_the_optimiser_finds_itself_is_a_unit():
    p = parameter()
    optimizer = torch.optim.SGD([p], lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    assert OptimizerStep(optimizer).lr == 1.0


def test_what_has_had_no_gradient_does_not_move():
    used, unused = parameter(0), parameter(1)
    optimizer = torch.optim.Adam([used, unused], lr=0.01)
    take_steps(optimizer, used, 2)
    assert OptimizerStep(optimizer).scales()[unused] == 0.0
    used.grad = torch.zeros(2, 3)
    fresh = torch.optim.Adam([used], lr=0.01)
    fresh.step()
    assert torch.equal(OptimizerStep(fresh).scales()[used], torch.zeros(2, 3)), "not 1 / epsilon"


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_optimiser_is_taken_for_a_plain_one_and_warned_about_once(name):
    p = parameter()
    optimizer = UNKNOWN[name]([p])
    steps = OptimizerStep(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = (p - 3.0).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    assert steps.is_known
    with pytest.warns(MetacalWarning, match=f"The state of {type(optimizer).__name__} is not known") as caught:
        assert steps.scales() == {p: 1.0}
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert steps.scales() == {p: 1.0}


class Own(torch.optim.Optimizer):
    """Adam-like, of somebody's own: the number of steps is the group's, or nobody's."""

    def __init__(self, parameters, counts):
        super().__init__(parameters, dict(lr=0.1, betas=(0.9, 0.5), eps=1e-8))
        self.counts = counts

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if self.counts:
                group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                moment = self.state[p].setdefault("exp_avg_sq", torch.zeros_like(p))
                moment.lerp_(p.grad.square(), 0.5)


def test_states_of_others_are_read_as_far_as_they_tell():
    p = parameter()
    optimizer = Own([p], counts=True)
    take_steps(optimizer, p, 3)
    torch.testing.assert_close(OptimizerStep(optimizer).scales()[p], 1.0 / (SIZES + 1e-8), rtol=1e-5, atol=0.0)
    optimizer = Own([p], counts=False)
    take_steps(optimizer, p, 3)
    with pytest.warns(MetacalWarning, match="The state of Own is not known"):
        assert OptimizerStep(optimizer).scales() == {p: 1.0}


def wrapped_by_fabric(net, optimizer):
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1).setup(net, optimizer)[1]


def wrapped_by_accelerate(net, optimizer):
    from accelerate import Accelerator

    return Accelerator(cpu=True).prepare(net, optimizer)[1]


def wrapped_by_lightning(net, optimizer):
    from lightning.pytorch.core.optimizer import LightningOptimizer

    return LightningOptimizer(optimizer)


@pytest.mark.parametrize("wrap", [wrapped_by_fabric, wrapped_by_accelerate, wrapped_by_lightning])
def test_wrapped_optimisers_are_looked_into(wrap):
    net = nn.Linear(3, 2, bias=False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    wrapped = wrap(net, optimizer)
    assert wrapped is not optimizer
    steps = OptimizerStep(wrapped)
    assert steps.optimizers == [optimizer]
    assert not steps.is_known
    take_steps(optimizer, net.weight, 2)
    torch.testing.assert_close(steps.scales()[net.weight], 1.0 / (SIZES + 1e-8), rtol=1e-5, atol=0.0)
    assert OptimizerStep([wrapped]).optimizers == [optimizer]


def test_which_modules_it_trains():
    net = make_net()
    steps = OptimizerStep(torch.optim.SGD(net.fc.parameters(), lr=0.1))
    assert steps.trains(net)
    assert steps.trains(net.fc)
    assert not steps.trains(net.backbone)
    net.fc.requires_grad_(False)
    assert not steps.trains(net.fc)


@pytest.mark.parametrize("wrong", [None, 0.1, [None], nn.Linear(2, 2)])
def test_what_is_not_an_optimiser(wrong):
    with pytest.raises(InvalidTypeError, match=r"`optimizer` must be the torch\.optim\.Optimizer that trains"):
        OptimizerStep(wrong)


def test_an_optimiser_of_nothing():
    frozen = torch.optim.SGD([parameter().requires_grad_(False)], lr=0.1)
    for nothing in (frozen, []):
        with pytest.raises(InvalidValueError, match="`optimizer` must train a parameter, got none"):
            OptimizerStep(nothing)


@pytest.mark.parametrize("through", ["head", "model"])
@pytest.mark.parametrize("name", ["adam fused", "adamw", "rmsprop", "adagrad", "adamax", "adadelta"])
def test_a_run_with_it(name, through):
    net = make_net()
    optimizer = make(name, net.parameters())
    meta = calibrator(net, VectorLabelSmoothing(K), optimizer=optimizer, through=through)
    train(meta, optimizer, 4)
    assert [record["step"] for record in meta.history] == [1, 2, 3], "waited for the first step"
    assert all(record["gradient_norm"] > 0 for record in meta.history)
    assert meta.skipped == 0


def test_an_optimiser_that_is_waited_for_in_micro_batches():
    """Parts of a batch that no meta step is due for are not kept."""
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters())
    meta = calibrator(net, optimizer=optimizer)
    for number in range(4):
        meta.step(*batch(12, number), boundary=number % 2 == 1).backward()
        if number % 2 == 1:
            optimizer.step()
    assert [record["step"] for record in meta.history] == [1]
