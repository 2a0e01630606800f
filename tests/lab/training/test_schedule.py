"""The learning rate by epoch, and optimisers by name."""

import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.training import Schedule, build_optimizer


def test_cosine_goes_from_one_to_nearly_nothing():
    factors = [Schedule("cosine", 10).factor(epoch) for epoch in range(10)]
    assert factors[0] == 1.0 and factors == sorted(factors, reverse=True)
    assert factors[5] == pytest.approx(0.5) and factors[9] < 0.03


def test_constant():
    assert Schedule("constant", 10).factor(7) == 1.0


def test_frozen_parameters_are_left_out():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = build_optimizer("sgd", model.parameters(), lr=0.1)
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_nothing_to_train():
    with pytest.raises(InvalidValueError, match="must have a parameter that is trained"):
        build_optimizer("sgd", torch.nn.Linear(2, 2).requires_grad_(False).parameters(), lr=0.1)


def test_an_unknown_optimiser():
    with pytest.raises(InvalidValueError, match="must be one of 'sgd', 'adam', 'adamw', got 'lion'"):
        build_optimizer("lion", torch.nn.Linear(2, 2).parameters(), lr=0.1)
