"""A hypergradient that does not look ahead: the one-step hypergradient in the limit of a short step."""

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
from metacal.metalearning.through_head import has_closed_form, one_step, through_graph


def in_the_limit(problem):
    return replace(problem, looks_ahead=False)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", [*HYPERPARAMETERS, *GENERAL])
def test_it_is_one_step_per_unit_of_a_short_one(name, reduction):
    problem = problem_of({**HYPERPARAMETERS, **GENERAL}[name](), lr=0.5, reduction=reduction)
    short = one_step(replace(problem, lr=1e-9))
    for ours, limit in zip(one_step(in_the_limit(problem)).through, short.through):
        torch.testing.assert_close(ours / 0.5, limit / 1e-9, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_the_closed_form_is_the_general_one(name, scaled):
    head = linear_head()
    problem = problem_of(HYPERPARAMETERS[name](), head, lr=0.5, scales=random_scales(head) if scaled else {})
    assert has_closed_form(problem, problem.inner())
    for ours, general in zip(one_step(in_the_limit(problem)).total, through_graph(in_the_limit(problem)).total):
        torch.testing.assert_close(ours, general, rtol=1e-10, atol=1e-12)


def test_the_learning_rate_is_a_factor_and_nothing_else():
    problem = in_the_limit(problem_of(randomised(NonUniformLabelSmoothing(K)), linear_head(), lr=1.0))
    (one, *_), (hundred, *_) = one_step(problem).total, one_step(replace(problem, lr=100.0)).total
    torch.testing.assert_close(hundred, 100.0 * one, rtol=1e-10, atol=0.0)
    ahead = one_step(replace(problem, lr=100.0, looks_ahead=True)).total[0]
    assert not torch.allclose(ahead, hundred, rtol=0.2), "a long step leaves the head elsewhere"


def test_any_head():
    head = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, K)).double()
    problem = problem_of(randomised(NonUniformLabelSmoothing(K)), head, lr=0.5)
    for ours, limit in zip(one_step(in_the_limit(problem)).through, one_step(replace(problem, lr=1e-9)).through):
        torch.testing.assert_close(ours / 0.5, limit / 1e-9, rtol=1e-4, atol=1e-7)
