"""CrossEntropyLoss as a module: soft labels, and class weights that move and are saved with it."""

import pytest
import torch
from tests.functional import samples

from metacal import functional as F
from metacal.losses import CrossEntropyLoss, DECELoss

LOGITS, TARGETS = samples.multiclass(40, 3)
WEIGHTS = torch.tensor([0.5, 2.0, 1.0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_are_those_of_torch(reduction):
    expected = torch.nn.CrossEntropyLoss(weight=WEIGHTS, reduction=reduction)(LOGITS, TARGETS)
    torch.testing.assert_close(CrossEntropyLoss(WEIGHTS, reduction)(LOGITS, TARGETS), expected)


def test_class_weights_may_be_a_list():
    assert torch.equal(CrossEntropyLoss([0.5, 2.0, 1.0])(LOGITS, TARGETS), CrossEntropyLoss(WEIGHTS)(LOGITS, TARGETS))


def test_class_weights_move_and_are_saved_within_a_sum():
    objective = CrossEntropyLoss(WEIGHTS) + 0.5 * DECELoss()
    assert list(objective.state_dict()) == ["losses.0.class_weights"]
    other = CrossEntropyLoss(torch.ones(3)) + 0.5 * DECELoss()
    other.load_state_dict(objective.state_dict())
    assert torch.equal(other(LOGITS, TARGETS), objective(LOGITS, TARGETS))
    other.to(torch.float64)
    assert other.losses[0].class_weights.dtype == torch.float64
    double = other(LOGITS.double(), TARGETS)
    assert double.dtype == torch.float64
    assert double.item() == pytest.approx(objective(LOGITS, TARGETS).item(), rel=1e-4)
    assert CrossEntropyLoss(WEIGHTS).to("meta").class_weights.device.type == "meta"


def test_without_class_weights_there_is_nothing_to_save():
    assert dict(CrossEntropyLoss().state_dict()) == {}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_float_targets_are_soft_labels(reduction):
    soft = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    expected = F.soft_cross_entropy(logits=LOGITS, targets=soft, reduction=reduction)
    assert torch.equal(CrossEntropyLoss(reduction=reduction)(LOGITS, soft), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_of_soft_labels_are_those_of_torch(reduction):
    soft = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.CrossEntropyLoss(weight=WEIGHTS, reduction=reduction)(LOGITS, soft)
    torch.testing.assert_close(CrossEntropyLoss(WEIGHTS, reduction)(LOGITS, soft), expected)
