"""Label smoothing against torch's, and soft labels from strengths that are numbers or tensors."""

import pytest
import torch
from tests.functional import samples

from metacal.errors import InvalidValueError
from metacal.functional import label_smoothing_loss, smooth_labels


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("strength", [0.0, 0.05, 0.5, 1.0, 0, 1])
def test_loss_equals_torch(strength, reduction):
    for dtype in (torch.float32, torch.float64):
        logits, targets = samples.multiclass(60, 5, dtype=dtype)
        expected = torch.nn.functional.cross_entropy(
            logits, targets, label_smoothing=float(strength), reduction=reduction
        )
        ours = label_smoothing_loss(logits=logits, targets=targets, strength=strength, reduction=reduction)
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("strength", [0, 1, 0.0, 0.1, 1.0, torch.tensor(0.1), torch.tensor([[0.1], [0.3]])])
def test_labels(strength):
    labels = smooth_labels(targets=torch.tensor([2, 0]), num_classes=4, strength=strength)
    s = torch.as_tensor(strength, dtype=torch.float32).expand(2, 1)
    expected = torch.tensor([[0.0, 0, 1, 0], [1, 0, 0, 0]]) * (1 - s) + s / 4
    torch.testing.assert_close(labels, expected)
    torch.testing.assert_close(labels.sum(1), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_from_any_integers(dtype):
    labels = smooth_labels(targets=torch.tensor([1], dtype=dtype), num_classes=2, strength=0.5)
    assert labels.tolist() == [[0.25, 0.75]]


def test_strength_can_be_learned():
    strength = torch.tensor(0.2, requires_grad=True)
    smooth_labels(targets=torch.tensor([1]), num_classes=4, strength=strength)[0, 1].backward()
    assert strength.grad.item() == pytest.approx(-0.75)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), 2])
def test_strength_outside_its_domain(strength):
    message = rf"`strength` must be in \[0, 1\], got {strength}\."
    with pytest.raises(InvalidValueError, match=message):
        smooth_labels(targets=torch.tensor([1]), num_classes=2, strength=strength)
    with pytest.raises(InvalidValueError, match=message):
        label_smoothing_loss(logits=torch.zeros(1, 2), targets=torch.tensor([1]), strength=strength)
