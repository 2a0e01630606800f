"""MMCE and its weighted form against double loops, and defined where the published form is not."""

import math

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import mmce, mmce_weighted


def loops(logits, targets):
    confidences, correct = oracles.top_label(oracles.softmax(logits.numpy()), targets.numpy())
    n, rights = len(correct), int(correct.sum())
    plain = weighted = 0.0
    for ci, ri in zip(confidences, correct):
        for cj, rj in zip(confidences, correct):
            kernel = math.exp(-abs(ci - cj) / 0.4)
            plain += (ri - ci) * (rj - cj) * kernel / n**2
            sizes = [rights if right else n - rights for right in (ri, rj)]
            weighted += (ri - ci) * (rj - cj) * kernel / (sizes[0] ** 2 * sizes[1] ** 2)
    return plain, math.sqrt(weighted)


@pytest.mark.parametrize(("n", "num_classes"), [(2, 2), (9, 5), (30, 3), (64, 10)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loops(n, num_classes, dtype):
    logits, targets = samples.multiclass(n, num_classes, dtype=dtype)
    targets[0], targets[1] = logits[0].argmax(), logits[1].argmin()  # at least one right and one wrong
    plain, weighted = loops(logits, targets)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert mmce(logits=logits, targets=targets).item() == pytest.approx(plain, abs=tolerance)
    assert mmce_weighted(logits=logits, targets=targets).item() == pytest.approx(weighted, abs=tolerance)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_weighted_form_is_0_without_right_or_without_wrong_predictions(n):
    logits = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    for targets in (logits.argmax(1), logits.argmin(1)):
        leaf = logits.clone().requires_grad_()
        value = mmce_weighted(logits=leaf, targets=targets)
        value.backward()
        assert value.item() == 0.0 and not leaf.grad.any()


def test_calibrated_pairs_have_no_mmce():
    assert mmce(logits=torch.zeros(2, 2), targets=torch.tensor([0, 1])).item() == 0.0
