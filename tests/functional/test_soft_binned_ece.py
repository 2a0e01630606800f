"""SB-ECE against a loop, zero where it must be, and close to ECE when it is sharp."""

import itertools

import pytest
import torch
from tests import oracles
from tests.functional import samples

from metacal.functional import expected_calibration_error, soft_binned_ece


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (2, 5), (30, 3), (64, 10)])
def test_equals_the_loop(n, num_classes):
    logits, targets = samples.multiclass(n, num_classes, dtype=torch.float64)
    for num_bins, temperature, power in itertools.product((1, 2, 15), (0.01, 0.1), (1.0, 2.0, 3.0)):
        arguments = {"num_bins": num_bins, "temperature": temperature, "power": power}
        expected = oracles.soft_binned_ece(logits.numpy(), targets.numpy(), **arguments)
        ours = soft_binned_ece(logits=logits, targets=targets, **arguments).item()
        assert ours == pytest.approx(expected, abs=1e-10), arguments
        narrow = soft_binned_ece(logits=logits.float(), targets=targets, **arguments).item()
        assert narrow == pytest.approx(expected, abs=1e-5), arguments


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_zero_has_a_zero_gradient(power):
    for rows, targets in (([[1e4, 0.0], [0.0, 1e4]], [0, 1]), ([[0.0, 0.0], [0.0, 0.0]], [0, 1])):
        logits = torch.tensor(rows, requires_grad=True)
        value = soft_binned_ece(logits=logits, targets=torch.tensor(targets), power=power)
        value.backward()
        assert value.item() == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(logits.grad).all()


def test_sharp_value_is_ece():
    logits, targets = samples.multiclass(500, 5, dtype=torch.float64)
    sharp = soft_binned_ece(logits=logits, targets=targets, temperature=1e-7, power=1).item()
    assert sharp == pytest.approx(expected_calibration_error(logits=logits, targets=targets).item(), abs=1e-6)


def test_correctness_carries_no_gradient():
    """One bin: the value is |accuracy - mean confidence|, whose gradient is that of the mean confidence."""
    logits, targets = samples.multiclass(30, 4, dtype=torch.float64)
    logits.requires_grad_()
    (ours,) = torch.autograd.grad(soft_binned_ece(logits=logits, targets=targets, num_bins=1), logits)
    confidences = torch.softmax(logits, 1).amax(1)
    accuracy = (logits.argmax(1) == targets).double().mean()
    (expected,) = torch.autograd.grad((confidences.mean() - accuracy).abs(), logits)
    torch.testing.assert_close(ours, expected)
