"""`small_step`: the one-step hypergradient per unit of a step, in the limit of a small one."""

from dataclasses import replace

import pytest
import torch
from tests.metalearning.problems import (
    GENERAL,
    HYPERPARAMETERS,
    D,
    K,
    linear_head,
    problem_of,
    random_scales,
    randomised,
)
from torch import nn

from metacal.metalearning import NonUniformLabelSmoothing
from metacal.metalearning.estimators import has_closed_form, implicit, one_step, small_step


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", [*HYPERPARAMETERS, *GENERAL])
def test_it_is_one_step_per_unit_of_a_short_one(name, reduction):
    problem = problem_of({**HYPERPARAMETERS, **GENERAL}[name](), lr=0.5, reduction=reduction)
    short = one_step(replace(problem, lr=1e-9))
    for ours, limit in zip(small_step(problem).through, short.through):
        torch.testing.assert_close(ours / 0.5, limit / 1e-9, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_the_closed_form_is_the_general_one(name, scaled):
    head = linear_head()
    problem = problem_of(HYPERPARAMETERS[name](), head, lr=0.5, scales=random_scales(head) if scaled else {})
    assert has_closed_form(problem, problem.inner())
    for ours, general in zip(small_step(problem).total, implicit(problem, terms=0).total):
        torch.testing.assert_close(ours, general, rtol=1e-10, atol=1e-12)


def test_the_learning_rate_is_a_factor_and_nothing_else():
    problem = problem_of(randomised(NonUniformLabelSmoothing(K)), linear_head(), lr=1.0)
    (one, *_), (hundred, *_) = small_step(problem).total, small_step(replace(problem, lr=100.0)).total
    torch.testing.assert_close(hundred, 100.0 * one, rtol=1e-10, atol=0.0)
    ahead = one_step(replace(problem, lr=100.0)).total[0]
    assert not torch.allclose(ahead, hundred, rtol=0.2), "a long step leaves the head elsewhere"


def test_any_head():
    head = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, K)).double()
    problem = problem_of(randomised(NonUniformLabelSmoothing(K)), head, lr=0.5)
    for ours, limit in zip(small_step(problem).through, one_step(replace(problem, lr=1e-9)).through):
        torch.testing.assert_close(ours / 0.5, limit / 1e-9, rtol=1e-4, atol=1e-7)
