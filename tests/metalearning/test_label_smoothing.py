"""One strength for all classes, deviations that have to be asked for, and a distribution over the wrong classes."""

import math

import pytest
import torch
from tests.metalearning.models import K, batch, calibrator, make_net
from tests.metalearning.problems import hierarchical
from torch import nn

from metacal import HierarchicalLabelSmoothing, OuterStep, ScalarLabelSmoothing
from metacal.errors import MetacalError
from metacal.metalearning import InnerLoss
from metacal.metalearning.hyperparameter import as_one
from metacal.metalearning.outer_step import AdamState, adam_step_


def by_hand(smoothing, label):
    """The formula, number by number."""
    base, deviation = smoothing.base.item(), smoothing.deviation.tolist()
    strength = min(max(base + deviation[label] - smoothing.threshold, 0.0), 0.5)
    numbers = smoothing.affinity[label].tolist()
    wrong = {k: math.exp(number) for k, number in enumerate(numbers) if k != label}
    return [1.0 - strength if k == label else strength * wrong[k] / sum(wrong.values()) for k in range(len(numbers))]


@pytest.mark.parametrize("change", [0.0, 0.4, -0.4])
def test_soft_labels_are_the_formula(change):
    """Also where a strength is cut off at either end."""
    smoothing = hierarchical()
    smoothing.deviation.data[1] += change
    rows = smoothing.soft_labels(torch.tensor([0, 1, 2, 3, 1]))
    expected = torch.tensor([by_hand(smoothing, label) for label in (0, 1, 2, 3, 1)], dtype=torch.float64)
    torch.testing.assert_close(rows.detach(), expected)
    torch.testing.assert_close(rows.sum(1), torch.ones(5, dtype=torch.float64))


def test_it_starts_as_smoothing_by_hand_does():
    """0.05 taken from the true class and shared out evenly; with a start of 0, labels are those that were given."""
    labels = torch.tensor([2, 0])
    torch.testing.assert_close(
        HierarchicalLabelSmoothing(3).soft_labels(labels),
        torch.tensor([[0.025, 0.025, 0.95], [0.95, 0.025, 0.025]]),
    )
    plain = HierarchicalLabelSmoothing(3, start=0.0).soft_labels(labels)
    assert torch.equal(plain, nn.functional.one_hot(labels, 3).float())
    two = HierarchicalLabelSmoothing(2, start=0.1).soft_labels(torch.tensor([0]))
    torch.testing.assert_close(two, torch.tensor([[0.9, 0.1]]))


def test_true_classes_have_no_share_to_learn():
    smoothing = hierarchical()
    weights = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (smoothing.soft_labels(torch.arange(4)) * weights).sum().backward()
    assert torch.equal(smoothing.affinity.grad.diagonal(), torch.zeros(4, dtype=torch.float64))
    assert smoothing.affinity.grad.abs().sum() > 0
    assert smoothing.base.grad != 0
    torch.testing.assert_close(smoothing.deviation.grad.sum(), smoothing.base.grad)


def test_soft_labels_of_soft_labels():
    smoothing = hierarchical().float()
    inner = as_one([ScalarLabelSmoothing(4), smoothing])(InnerLoss.plain(torch.tensor([1, 3]), 4))
    torch.testing.assert_close(inner.targets, smoothing.soft_labels(torch.tensor([1, 3])))


def test_below_the_threshold_there_is_no_smoothing_and_a_way_back():
    """A class whose base and deviation together are below it has hard labels; the gradient is as if there were none."""
    smoothing = HierarchicalLabelSmoothing(3, start=0.1, threshold=0.04).double()
    smoothing.deviation.data.copy_(torch.tensor([0.0, -0.1, -0.13]))
    torch.testing.assert_close(smoothing.strength.detach(), torch.tensor([0.1, 0.0, 0.0]).double())
    assert smoothing.soft_labels(torch.tensor([2])).tolist() == [[0.0, 0.0, 1.0]]
    weights = torch.tensor([[0.5, -1.0, 2.0]]).double().expand(3, 3)
    (smoothing.soft_labels(torch.arange(3)) * weights).sum().backward()
    # By hand: a soft label moves from the true class to the mean of the others.
    expected = torch.tensor([0.5 - 0.5, 1.25 + 1.0, -0.25 - 2.0]).double()
    torch.testing.assert_close(smoothing.deviation.grad, expected)
    torch.testing.assert_close(smoothing.base.grad, expected.sum())


def test_everything_is_forgotten_and_deviations_move_at_a_share_of_the_rate():
    alone = HierarchicalLabelSmoothing(3, share=0.2, decay=0.01).double()
    member = as_one({"labels": HierarchicalLabelSmoothing(3, share=0.2, decay=0.01).double()})
    for smoothing in (alone, member):
        names = {name.rsplit(".", 1)[-1]: parameter for name, parameter in smoothing.omega().items()}
        state = AdamState.zeros(tuple(smoothing.omega().values()))
        outer = OuterStep(adaptive=False, lr=1e-3)
        ones, start = [torch.ones_like(p) for p in smoothing.omega().values()], names["base"].item()
        adam_step_(smoothing, ones, state, outer)
        torch.testing.assert_close(names["base"].item(), start * 0.99 - 1e-3, rtol=1e-6, atol=0.0)
        torch.testing.assert_close(names["deviation"].detach(), torch.full((3,), -2e-4).double(), rtol=1e-6, atol=0.0)
        state = AdamState.zeros(tuple(smoothing.omega().values()))
        for parameter, value in zip(names.values(), (0.3, 0.1, 2.0), strict=True):
            parameter.data.fill_(value)
        before = {name: parameter.detach().clone() for name, parameter in names.items()}
        for _ in range(100):
            adam_step_(smoothing, [torch.zeros_like(one) for one in ones], state, outer, interval=4)
        for name, parameter in names.items():
            torch.testing.assert_close(parameter.detach(), before[name] * 0.99**400, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(
    ("name", "value"), [("start", 0.6), ("start", -0.1), ("threshold", -0.1), ("share", -1.0), ("decay", 1.0)]
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(MetacalError, match=f"`{name}` must be .*, got {value}"):
        HierarchicalLabelSmoothing(3, **{name: value})


def test_bounds_summary_and_export():
    smoothing = HierarchicalLabelSmoothing(K, threshold=0.25)
    smoothing.base.data.fill_(0.9)
    smoothing.deviation.data.copy_(torch.tensor([-2.0, 0.1, 0.0]))
    smoothing.project_()
    assert smoothing.base == 0.75
    assert smoothing.deviation.min() == -0.5
    assert smoothing.stuck() == ["base"]
    summary = {name: round(value.item(), 4) for name, value in smoothing.summary().items()}
    assert summary == {"base": 0.75, "strength": 0.3333, "strength_min": 0.0, "strength_max": 0.5}
    exported = smoothing.export()
    assert set(exported) == {"base", "deviation", "affinity", "soft_labels"}
    assert exported["soft_labels"][0] == [1.0, 0.0, 0.0]


def test_its_summary_is_followed_in_the_history():
    meta = calibrator(make_net(), HierarchicalLabelSmoothing(K))
    meta.step(*batch(12, 1))
    assert {"base", "strength", "strength_min", "strength_max"} <= set(meta.history[0])
    assert "base 0.0" in meta.summary()


def test_rows_that_are_looked_up_are_those_of_each_sample():
    """To the bit: it is how labels are made where no gradient is asked for."""
    torch.manual_seed(0)
    smoothing = HierarchicalLabelSmoothing(4, threshold=0.1)
    for parameter in smoothing.parameters():
        nn.init.uniform_(parameter, 0.0, 0.3)
    labels = torch.randint(4, (50,))
    expected = torch.cat([smoothing.soft_labels(label.reshape(1)) for label in labels])
    assert expected.requires_grad
    assert torch.equal(smoothing.soft_labels(labels), expected)
    assert torch.equal(smoothing.requires_grad_(False).soft_labels(labels), expected)
