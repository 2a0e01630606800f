"""Every value and gradient of the published functions, to 1e-5 of its largest entry (DECE 5e-5)."""

import math

import numpy as np
import pytest
import torch
from tests import oracles

from metacal import functional as F

CASES = ["0_n128_k10", "1_n64_k100", "2_n257_k3", "3_n500_k10", "4_n2_k5"]
# The published DECE divides by 1 + (M + 1) * 1e-6, where ours is the definition: a share of 1.6e-5 that 5e-5 allows.
DIFFERENTIABLE = {
    "dece": (F.dece, 5e-5),
    "dece_m10_ta50_tb02": (
        lambda **batch: F.dece(**batch, num_bins=10, tau_a=50.0, tau_b=0.02),
        5e-5,
    ),
    "mmce": (F.mmce, 1e-5),
    "mmce_weighted": (F.mmce_weighted, 1e-5),
    "focal3_sum": (lambda **batch: F.focal_loss(**batch, gamma=3.0, reduction="sum"), 1e-5),
    "flsd53_sum": (lambda **batch: F.flsd_loss(**batch, reduction="sum"), 1e-5),
}


def batch_of(golden, case):
    return (
        torch.tensor(golden[f"metrics/{case}/logits"]),
        torch.tensor(golden[f"metrics/{case}/targets"]),
    )


def relative(ours, theirs):
    return float(np.abs(np.asarray(ours, dtype=np.float64) - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_differentiable_values_and_gradients(golden, case, name):
    function, tolerance = DIFFERENTIABLE[name]
    logits, targets = batch_of(golden, case)
    logits.requires_grad_()
    value = function(logits=logits, targets=targets)
    value.backward()
    expected = golden[f"metrics/{case}/{name}"]
    if name == "mmce_weighted" and case == "4_n2_k5":
        # The published form divides by the number of wrong predictions, here 0; ours is defined without them.
        assert math.isnan(expected)
        assert torch.isfinite(value) and torch.isfinite(logits.grad).all()
        return
    assert relative(value.item(), expected) <= tolerance
    assert relative(logits.grad.numpy(), golden[f"metrics/{case}/{name}_grad"]) <= tolerance


@pytest.mark.parametrize("case", CASES)
def test_expected_calibration_error(golden, case):
    logits, targets = batch_of(golden, case)
    ours = F.expected_calibration_error(logits=logits, targets=targets)
    assert relative(ours.item(), golden[f"metrics/{case}/ece"]) <= 1e-5


@pytest.mark.parametrize("case", CASES)
def test_classwise_error_differs_by_the_published_number_of_classes_alone(golden, case):
    """Published: K is the largest label plus 1. Ours comes from the array, so classes after it count too."""
    logits, targets = batch_of(golden, case)
    probs = torch.softmax(logits, 1).numpy()
    seen = int(targets.max()) + 1
    published = golden[f"metrics/{case}/classwise_ece"]
    assert relative(oracles.classwise_ece(probs[:, :seen], targets.numpy()), published) <= 1e-5
    ours = F.classwise_calibration_error(logits=logits, targets=targets).item()
    assert ours == pytest.approx(oracles.classwise_ece(probs, targets.numpy()), rel=1e-5)
    if seen == probs.shape[1]:
        assert relative(ours, published) <= 1e-5


@pytest.mark.parametrize("case", CASES)
def test_adaptive_error_differs_by_the_published_quirk_alone(golden, case):
    """Published: (a, b] edges that start at the smallest confidence, which so falls out. Ours counts every sample."""
    logits, targets = batch_of(golden, case)
    confidences, correct = oracles.top_label(torch.softmax(logits, 1).numpy(), targets.numpy())
    published = oracles.published_adaptive_ece(confidences, correct)
    assert relative(published, golden[f"metrics/{case}/adaptive_ece"]) <= 1e-5
    ours = F.adaptive_calibration_error(logits=logits, targets=targets).item()
    assert ours == pytest.approx(oracles.adaptive_ece(confidences, correct), abs=1e-6)
