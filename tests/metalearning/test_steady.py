"""``preset="steady"``: what is learned follows neither the learning rate's schedule nor the loss's reduction."""

import pytest
import torch
from tests.metalearning.models import K, batch, make_net
from torch import nn

import metacal
from metacal.losses import DECE
from metacal.metalearning.one_step import small_step


def learned(lr: float | list[float], **settings) -> torch.Tensor:
    """Strengths after some meta steps on a model that stands still, over-confident on what is held out."""
    torch.manual_seed(0)
    head = nn.Linear(6, 4)
    nn.init.normal_(head.weight, std=2.0)
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), **settings)
    x, y = torch.randn(40, 6), torch.randint(4, (40,))
    held_out = torch.randn(40, 6), torch.randint(4, (40,))
    for rate in lr if isinstance(lr, list) else [lr] * 30:
        meta.step(x, y, meta=held_out, lr=rate)
    return meta.hyperparameters.strength.detach()


def test_it_is_made_of_its_parts():
    head = nn.Linear(6, 4)
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), preset="steady")
    assert meta.settings.memory == 512 and meta.settings.per_unit_step and meta.estimator is small_step
    assert [term.gradient for term in meta.objective.modules() if isinstance(term, DECE)] == ["confidence"]


@pytest.mark.parametrize("other", [{"lr": 1e-4}, {"lr": 10.0}, {"lr": 0.1, "inner_reduction": "sum"}])
def test_neither_learning_rate_nor_reduction_changes_what_is_learned(other):
    torch.testing.assert_close(
        learned(**{"preset": "steady", **other}), learned(0.1, preset="steady"), rtol=1e-3, atol=1e-6
    )


def test_a_long_published_step_learns_something_else():
    assert learned(0.1, preset="steady").max() > 0.0
    assert not torch.allclose(learned(10.0, preset="paper"), learned(0.1, preset="paper"), rtol=0.2)


def test_it_does_not_stall_when_the_learning_rate_drops():
    dropped = [0.1] * 50 + [0.001] * 50
    steady, stalled = (learned(dropped, preset="steady", per_unit_step=unit).max() for unit in (True, False))
    torch.testing.assert_close(steady, learned([0.1] * 100, preset="steady").max())
    assert stalled < 0.75 * steady


def test_several_labels_a_sample_are_not_remembered():
    """A head that is given sequences: features and labels differ in number, and cannot be cut alike."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), preset="steady")
    x, y = torch.randn(8, 10, 6), torch.randint(4, (8, 10))
    for _ in range(10):
        loss = meta.step(x, y, meta=(torch.randn(8, 10, 6), y), lr=0.1)
    assert torch.isfinite(loss) and meta.state_dict()["memory"] == {}


def test_what_is_given_by_hand_comes_before_the_preset():
    head = nn.Linear(6, 4)
    settings = {"memory": 0, "estimator": "one_step", "per_unit_step": False}
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), preset="steady", **settings)
    assert meta.settings.memory == 0 and not meta.settings.per_unit_step and meta.estimator is not small_step


def test_the_gradient_that_is_told_is_the_one_that_is_taken():
    """Per unit step, a schedule that drops the learning rate does not make it look as if omega had arrived."""
    told = []
    for lr in (0.1, 0.001):
        net = make_net(norm=False, dropout=0.0)
        meta = metacal.MetaCalibrator(net, net.fc, metacal.ScalarLabelSmoothing(K), every=1, preset="steady")
        meta.step(*batch(12, 1), meta=batch(10, 2), lr=lr)
        told.append(meta.history[-1]["gradient_norm"])
    assert told[0] == pytest.approx(told[1], rel=1e-4)
