"""EvoGrad comes to the one-step gradient as its noise shrinks and its population grows."""

from dataclasses import replace

import pytest
import torch
from tests.metalearning.problems import GENERAL, problem_of, randomised
from torch import nn

from metacal import ScalarLabelSmoothing
from metacal.errors import InvalidValueError
from metacal.losses import FunctionLoss
from metacal.metalearning.estimators import evograd, one_step


def quadratic_problem():
    """Quadratic inner loss and a linear meta-loss on a tiny head: the only error left is that of the population."""
    torch.manual_seed(3)
    problem = problem_of(
        randomised(ScalarLabelSmoothing(2)),
        head=nn.Linear(1, 2, bias=False).double(),
        base_loss=FunctionLoss(lambda logits, targets: (logits - targets).square().sum(dim=1)),
        objective=FunctionLoss(lambda logits, targets: logits.gather(1, targets.unsqueeze(1)).mean()),
        lr=1e-3,
        num_classes=2,
    )
    return replace(problem, features=problem.features[:, :1], meta_features=problem.meta_features[:, :1])


def relative_error(problem, **options):
    torch.manual_seed(0)
    exact, found = one_step(problem).total[0], evograd(problem, **options).total[0]
    return float((found - exact).norm() / exact.norm())


def test_grows_closer_with_the_population():
    problem = quadratic_problem()
    errors = [relative_error(problem, population=n, noise=1e-3, temperature=1.0) for n in (10, 1000, 100_000)]
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.5 * errors[1]
    assert errors[-1] < 0.02


def test_grows_closer_as_the_noise_shrinks():
    """With a large population, what remains is that the weights' softmax is not linear in the losses."""
    problem = quadratic_problem()
    errors = [relative_error(problem, population=100_000, noise=noise, temperature=0.05) for noise in (1.0, 0.2, 0.01)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02


@pytest.mark.parametrize("population", [2, 3, 8])
def test_expected_size_holds_for_small_populations(population):
    """The mean over many draws is the one-step gradient only with the factor (N - 1) / N: half, for two members."""
    problem = quadratic_problem()
    torch.manual_seed(1)
    found = [evograd(problem, population=population, noise=1e-3, temperature=1.0).total[0] for _ in range(2000)]
    ratios = torch.stack(found) / one_step(problem).total[0]
    error = float(ratios.std()) / len(found) ** 0.5
    assert abs(float(ratios.mean()) - 1.0) < 4 * error
    assert 4 * error < 0.5 / population


def test_direct_gradient_is_not_rescaled():
    problem = problem_of(GENERAL["temperature"](), lr=1e-9)
    torch.manual_seed(0)
    found = evograd(problem, noise=1e-6)
    torch.testing.assert_close(found.total[0], one_step(problem).total[0], rtol=1e-3, atol=1e-9)


def test_a_population_of_one_is_refused():
    with pytest.raises(InvalidValueError, match="`population` must be an integer >= 2, got 1"):
        evograd(quadratic_problem(), population=1)
