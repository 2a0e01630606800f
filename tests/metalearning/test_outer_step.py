"""Adam against torch's, skipping on the device, step sizes that adapt; and what the default does not depend on."""

import math
from dataclasses import replace

import pytest
import torch
from tests.metalearning.models import K, batch, both_ways, calibrator, make_net
from torch import nn

from metacal import PAPER, Hyperparameter, OuterStep, ScalarLabelSmoothing, VectorLabelSmoothing
from metacal.errors import MetacalError
from metacal.metalearning.outer_step import LARGEST, SMALLEST, AdamState, adam_step_

PLAIN = OuterStep(adaptive=False, lr=1e-2)
ADAPTIVE = OuterStep(adaptive=True, lr=1e-4)


class Numbers(Hyperparameter):
    """Two tensors, the second of which may move at another rate and decay."""

    def __init__(self, size, dtype=torch.float64, rate=1.0, decay=0.0):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.zeros(size, dtype=dtype)) for _ in range(2))
        self.rate, self.decay = rate, decay

    def rates(self):
        return {"second": self.rate}

    def decays(self):
        return {"second": self.decay} if self.decay else {}


def started(numbers):
    return AdamState.zeros(tuple(numbers.omega().values()))


def step(numbers, gradient, state, outer, interval=1):
    return adam_step_(numbers, (gradient, gradient), state, outer, interval)


def run(outer, gradients):
    numbers = Numbers(len(gradients[0]))
    state = started(numbers)
    for gradient in gradients:
        step(numbers, gradient, state, outer)
    return numbers.first.detach(), state


def random_gradients(steps, size=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(steps, size, generator=generator, dtype=torch.float64))


def test_is_torchs_adam_when_the_size_is_fixed():
    gradients = random_gradients(20)
    ours, state = run(PLAIN, gradients)
    theirs = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=1e-2)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=1e-12)
    assert state.taken == 20
    assert state.skipped == 0


def test_a_gradient_that_is_not_finite_changes_nothing_but_the_count():
    gradients = random_gradients(6)
    bad = gradients[0].clone()
    bad[2] = torch.nan
    clean, clean_state = run(ADAPTIVE, gradients)
    mixed, mixed_state = run(ADAPTIVE, [bad, *gradients[:3], bad, *gradients[3:]])
    assert torch.equal(clean, mixed)
    assert mixed_state.skipped == 2
    assert mixed_state.taken == 6
    assert torch.equal(clean_state.sizes[0], mixed_state.sizes[0])


def test_the_size_grows_while_gradients_agree():
    _, state = run(ADAPTIVE, [torch.ones(5, dtype=torch.float64)] * 30)
    assert state.sizes[0] == LARGEST


def test_the_size_shrinks_in_noise():
    _, state = run(OuterStep(adaptive=True, lr=LARGEST), random_gradients(400, size=50))
    assert state.sizes[0] < 0.1 * LARGEST
    assert state.sizes[0] >= SMALLEST


def test_the_start_hardly_matters():
    gradients = [torch.ones(5, dtype=torch.float64)] * 100
    ends = [run(OuterStep(adaptive=True, lr=lr), gradients)[0][0].item() for lr in (1e-4, 1e-3, 1e-2)]
    assert max(ends) / min(ends) < 1.1
    fixed = [run(OuterStep(adaptive=False, lr=lr), gradients)[0][0].item() for lr in (1e-4, 1e-3, 1e-2)]
    assert min(fixed) / max(fixed) > 50


def test_a_change_of_interval_leaves_the_bias_correction_right():
    """With a constant gradient every step is one step size a training step, whatever the intervals were."""
    numbers = Numbers(1)
    state = started(numbers)
    for interval in (1,) * 50 + (16,) * 10 + (4,) * 5:
        before = numbers.first.detach().clone()
        step(numbers, torch.ones(1, dtype=torch.float64), state, PLAIN, interval)
        assert (before - numbers.first).item() == pytest.approx(1e-2 * interval, rel=1e-6)
    assert state.elapsed == 50 + 160 + 20
    assert state.taken == 65


def test_a_gradient_whose_square_overflows_is_skipped():
    numbers = Numbers(2, torch.float32)
    state = started(numbers)
    taken = [step(numbers, torch.full((2,), size), state, PLAIN) for size in (1.0, 3e19, 1.0)]
    assert torch.isfinite(numbers.first).all()
    assert state.skipped == 1
    assert state.taken == 2
    assert [bool(each) for each in taken] == [True, False, True]


@pytest.mark.parametrize("interval", [1, 4])
def test_each_parameter_moves_at_its_rate_and_decays(interval):
    """At a rate of 0.1 it goes a tenth as far; what decays keeps a share of (1 - decay) for each training step."""
    slow, steady = Numbers(3, rate=0.1), Numbers(3, rate=0.1, decay=0.01)
    states = started(slow), started(steady)
    gradient = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    expected = torch.zeros(3, dtype=torch.float64)
    for _ in range(5):
        step(slow, gradient, states[0], PLAIN, interval)
        step(steady, gradient, states[1], PLAIN, interval)
        expected = expected * 0.99**interval - 0.1 * 1e-2 * interval * gradient.sign()
    torch.testing.assert_close(slow.second.detach(), 0.1 * slow.first.detach())
    torch.testing.assert_close(steady.second.detach(), expected, rtol=1e-6, atol=1e-12)
    assert torch.equal(steady.first, slow.first)


def test_what_decays_stays_where_the_gradient_is_not_finite():
    numbers = Numbers(2, decay=0.5)
    numbers.second.data.fill_(1.0)
    step(numbers, torch.tensor([1.0, torch.nan], dtype=torch.float64), started(numbers), PLAIN)
    assert numbers.second.tolist() == [1.0, 1.0]


def test_which_iterations_take_a_meta_step():
    """Each 16th of the first thousand, then each 48th; `every` is never exceeded."""
    assert [i for i in range(1100) if OuterStep().is_due(i)] == [*range(0, 1000, 16), 1008, 1056]
    assert [i for i in range(9) if OuterStep(every=2).is_due(i)] == [0, 2, 4, 6, 8]
    assert [i for i in range(5) if PAPER.is_due(i)] == [0, 1, 2, 3, 4]
    assert not any(replace(PAPER, every=math.inf).is_due(i) for i in range(5))
    assert [i for i in range(99) if OuterStep(every=math.inf, dense_start=20).is_due(i)] == [0, 16]


WRONG = {
    "every 0": (dict(every=0), "`every` must be an integer >= 1 or math.inf, got 0"),
    "every 2.5": (dict(every=2.5), "`every` must be an integer >= 1 or math.inf, got 2.5"),
    "every nan": (dict(every=math.nan), "`every` must be an integer >= 1 or math.inf, got nan"),
    "every True": (dict(every=True), "`every` must be an integer >= 1 or math.inf, got True"),
    "every a string": (dict(every="16"), "`every` must be an integer >= 1 or math.inf, got '16'"),
    "lr 0": (dict(lr=0.0), "`lr` must be a number > 0, got 0.0"),
    "memory -1": (dict(memory=-1), "`memory` must be an integer >= 0, got -1"),
    "dense_start -1": (dict(dense_start=-1), "`dense_start` must be an integer >= 0, got -1"),
    "dense_every 0": (dict(dense_every=0), "`dense_every` must be an integer >= 1, got 0"),
    "mode": (dict(mode="test"), "`mode` must be one of 'train', 'eval', got 'test'"),
    "betas of one": (dict(betas=(0.9,)), r"`betas` must be two numbers in \[0, 1\), got \(0.9,\)"),
    "betas of 1": (dict(betas=(0.9, 1.0)), r"`betas` must be two numbers in \[0, 1\), got \(0.9, 1.0\)"),
    "through": (dict(through="body"), "`through` must be one of 'head', 'model', got 'body'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_an_outer_step_refuses(name):
    options, message = WRONG[name]
    with pytest.raises(MetacalError, match=message) as raised:
        calibrator(outer=OuterStep(**options))
    assert isinstance(raised.value, (ValueError, TypeError))


EACH = OuterStep(every=1, refine=False)


def learned(lr, *, through="head", reduction="mean", outer=EACH):
    """Strengths after some meta steps on a model that stands still, over-confident on what is held out."""
    torch.manual_seed(0)
    head = nn.Linear(6, 4).double()
    nn.init.normal_(head.weight, std=2.0)
    x, x_meta = torch.randn(2, 40, 6, dtype=torch.float64)
    y, y_meta = torch.randint(4, (2, 40))
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    options = dict(meta=[(x_meta, y_meta)], optimizer=optimizer, through=through, reduction=reduction, outer=outer)
    meta = calibrator(head, VectorLabelSmoothing(4), **options)
    for rate in lr if isinstance(lr, list) else [lr] * 30:
        optimizer.param_groups[0]["lr"] = rate
        meta.step(x, y)
    return meta.hyperparameters.strength.detach()


@both_ways
@pytest.mark.parametrize("other", [{"lr": 1e-4}, {"lr": 10.0}, {"lr": 0.1, "reduction": "sum"}])
def test_neither_learning_rate_nor_reduction_changes_what_is_learned(other, through):
    wanted = learned(0.1, through=through)
    assert wanted.max() > 0.0
    torch.testing.assert_close(learned(**other, through=through), wanted, rtol=1e-3, atol=1e-6)


def test_a_long_published_step_learns_something_else():
    assert not torch.allclose(learned(10.0, outer=PAPER), learned(0.1, outer=PAPER), rtol=0.2)


@both_ways
def test_it_does_not_stall_when_the_learning_rate_drops(through):
    dropped = [0.1] * 50 + [0.001] * 50
    steady = learned(dropped, through=through).max()
    stalled = learned(dropped, through=through, outer=replace(EACH, per_unit_step=False)).max()
    torch.testing.assert_close(steady, learned([0.1] * 100, through=through).max(), rtol=1e-5, atol=0.0)
    assert stalled < 0.75 * steady


@both_ways
def test_the_gradient_that_is_told_is_the_one_that_is_taken(through):
    """Per unit step, a schedule that drops the learning rate does not make it look as if omega had arrived."""
    told = []
    for lr in (0.1, 0.001):
        net = make_net(norm=False, dropout=0.0)
        meta = calibrator(net, ScalarLabelSmoothing(K), lr=lr, through=through)
        meta.step(*batch(12, 1))
        told.append(meta.history[-1]["gradient_norm"])
    assert told[0] == pytest.approx(told[1], rel=1e-4)
    assert told[0] > 0.0
