"""A loss after the best temperature: its value, and its gradient with that temperature held fixed."""

import pytest
import torch
from torch import nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional import temperature_with_prior
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, FunctionLoss


def samples(n=60, scale=6.0, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator, dtype=dtype)
    targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return (scale * logits).requires_grad_(), targets


LOSSES = {
    "cross-entropy": CrossEntropyLoss(),
    "with calibration": CrossEntropyLoss() + 0.5 * DECELoss(),
    "own": FunctionLoss(nn.functional.multi_margin_loss),
    "unreduced": CrossEntropyLoss(reduction="none"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_at_the_fixed_temperature(name, dtype):
    logits, targets = samples(dtype=dtype)
    value = AfterTemperature(LOSSES[name])(logits, targets)
    (found,) = torch.autograd.grad(value.sum(), logits)
    temperature = temperature_with_prior(logits=logits, targets=targets).item()
    assert temperature > 2.0
    expected = LOSSES[name](logits / temperature, targets)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), logits)[0])


def test_by_the_envelope_theorem_the_gradient_is_that_of_the_refined_likelihood():
    """Of the summed NLL after its own best temperature, up to the prior's share, which is small for many samples."""
    logits, targets = samples(n=400)
    (found,) = torch.autograd.grad(AfterTemperature(CrossEntropyLoss(), prior_std=100.0)(logits, targets), logits)

    def refined(row, column, change):
        moved = logits.detach().clone()
        moved[row, column] += change
        best = temperature_with_prior(logits=moved, targets=targets, prior_std=100.0, iterations=60)
        return CrossEntropyLoss()(moved / best, targets).item()

    for row, column in ((0, 0), (7, 3), (123, 1)):
        numeric = (refined(row, column, 1e-4) - refined(row, column, -1e-4)) / 2e-4
        assert found[row, column].item() == pytest.approx(numeric, rel=1e-3, abs=1e-9)


def test_the_scale_of_logits_hardly_matters():
    """With many samples: what a temperature can fix is not judged."""
    logits, targets = samples(n=5000)
    refined = AfterTemperature(CrossEntropyLoss())
    first, second = refined(logits, targets), refined(2.5 * logits, targets)
    torch.testing.assert_close(first, second, rtol=1e-4, atol=0.0)
    assert CrossEntropyLoss()(2.5 * logits, targets) > 1.5 * CrossEntropyLoss()(logits, targets)


def test_it_adds_and_scales_and_says_what_it_is():
    both = 2 * AfterTemperature(CrossEntropyLoss()) + DECELoss(num_bins=5)
    logits, targets = samples()
    parts = 2 * AfterTemperature(CrossEntropyLoss())(logits, targets) + DECELoss(num_bins=5)(logits, targets)
    torch.testing.assert_close(both(logits, targets), parts)
    assert repr(AfterTemperature(CrossEntropyLoss())) == "AfterTemperature(CrossEntropyLoss(reduction='mean'))"


def test_bad_input():
    with pytest.raises(InvalidTypeError, match="`loss` must be a metacal Loss, got CrossEntropyLoss; FunctionLoss"):
        AfterTemperature(nn.CrossEntropyLoss())
    with pytest.raises(InvalidValueError, match="`prior_std` must be a number > 0, got -1"):
        AfterTemperature(CrossEntropyLoss(), prior_std=-1)
