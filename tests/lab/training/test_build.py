"""Optimisers by name."""

import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.training import RunSpec, build_spec
from metacal.lab.training.build import build_optimizer

SGD = RunSpec(dataset="digits", model="mlp", lr=0.1)


@pytest.mark.parametrize(("name", "kind"), [("sgd", "SGD"), ("adam", "Adam"), ("adamw", "AdamW")])
def test_the_optimiser_that_the_spec_names(name, kind):
    spec = SGD.model_copy(update={"optimizer": name, "weight_decay": 0.3})
    optimizer = build_optimizer(spec, torch.nn.Linear(2, 2).parameters())
    assert type(optimizer).__name__ == kind
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.param_groups[0]["weight_decay"] == 0.3


def test_frozen_parameters_are_left_out():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = build_optimizer(SGD, model.parameters())
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_nothing_to_train():
    with pytest.raises(InvalidValueError, match="must have a trainable parameter"):
        build_optimizer(SGD, torch.nn.Linear(2, 2).requires_grad_(False).parameters())


def test_an_unknown_optimiser():
    with pytest.raises(InvalidValueError, match=r"`optimizer`: .*'sgd', 'adam' or 'adamw', got 'lion'"):
        build_spec({"dataset": "digits", "optimizer": "lion"})
