"""``preset="steady"``: what is learned follows neither the learning rate's schedule nor the loss's reduction."""

import pytest
import torch
from torch import nn

import metacal
from metacal.losses import DECE
from metacal.metalearning.one_step import small_step


def learned(lr: float, **settings) -> torch.Tensor:
    """Strengths after some meta steps on a model that stands still, over-confident on what is held out."""
    torch.manual_seed(0)
    head = nn.Linear(6, 4)
    nn.init.normal_(head.weight, std=2.0)
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), **settings)
    x, y = torch.randn(40, 6), torch.randint(4, (40,))
    held_out = torch.randn(40, 6), torch.randint(4, (40,))
    for _ in range(30):
        meta.step(x, y, meta=held_out, lr=lr)
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


def test_the_published_step_is_changed_by_both():
    steady, published = learned(0.1, preset="steady"), learned(0.1, preset="paper")
    assert steady.max() > 0.0
    assert not torch.allclose(learned(10.0, preset="paper"), published, rtol=0.2)


def test_what_is_given_by_hand_comes_before_the_preset():
    head = nn.Linear(6, 4)
    settings = {"memory": 0, "estimator": "one_step", "per_unit_step": False}
    meta = metacal.MetaCalibrator(head, head, metacal.VectorLabelSmoothing(4), preset="steady", **settings)
    assert meta.settings.memory == 0 and not meta.settings.per_unit_step and meta.estimator is not small_step
