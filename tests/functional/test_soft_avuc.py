"""S-AvUC against a loop, and which way it pulls."""

import itertools

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import soft_avuc


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 5), (30, 3), (64, 10)])
def test_equals_the_loop(n, num_classes):
    logits, targets = samples.multiclass(n, num_classes, dtype=torch.float64)
    for kappa, temperature in itertools.product((0.1, 0.5, 0.9), (0.01, 0.1, 1.0)):
        expected = oracles.soft_avuc(logits.numpy(), targets.numpy(), kappa, temperature)
        ours = soft_avuc(logits=logits, targets=targets, kappa=kappa, temperature=temperature).item()
        assert ours == pytest.approx(expected, rel=1e-9, abs=1e-12)
        narrow = soft_avuc(logits=logits.float(), targets=targets, kappa=kappa, temperature=temperature).item()
        assert narrow == pytest.approx(expected, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("target", "sign"), [(0, -1), (1, 1)])
def test_right_predictions_are_pulled_to_certainty_and_wrong_ones_from_it(target, sign):
    logits = torch.tensor([[1.0, 0.0], [1.5, 0.0]], requires_grad=True)
    soft_avuc(logits=logits, targets=torch.tensor([target, target])).backward()
    assert (logits.grad[:, 0].sign() == sign).all()
