"""The implicit estimator against the exact implicit gradient, which a quadratic inner loss allows to write down."""

import pytest
import torch
from tests.metalearning.problems import GENERAL, HYPERPARAMETERS, K, linear_head, problem_of, randomised

from metacal import NonUniformLabelSmoothing, ScalarLabelSmoothing
from metacal.losses import FunctionLoss
from metacal.metalearning.estimators import implicit, one_step


def squared_error(logits, soft_labels):
    return (logits - soft_labels).square().sum(dim=1)


def quadratic_problem(**changes):
    return problem_of(randomised(NonUniformLabelSmoothing(K)), base_loss=FunctionLoss(squared_error), **changes)


def exact_implicit_gradient(problem):
    """``-grad L_o . H^-1 . d(grad L_i)/d omega`` with the Hessian written out."""
    parameters = problem.parameters()
    shapes = {name: value.shape for name, value in parameters.items()}
    start = torch.cat([value.detach().reshape(-1) for value in parameters.values()])

    def split(flat):
        sizes = [shape.numel() for shape in shapes.values()]
        return {name: part.view(shapes[name]) for name, part in zip(shapes, torch.split(flat, sizes))}

    hessian = torch.autograd.functional.hessian(lambda flat: problem.inner_value(split(flat)), start)
    flat = start.clone().requires_grad_()
    (meta_gradient,) = torch.autograd.grad(problem.meta_value(split(flat)), flat)
    (inner_gradient,) = torch.autograd.grad(problem.inner_value(split(flat)), flat, create_graph=True)
    solved = torch.linalg.solve(hessian, meta_gradient)
    return torch.autograd.grad(-(inner_gradient * solved).sum(), problem.omega), hessian


def test_equals_the_exact_implicit_gradient_on_a_quadratic():
    problem = quadratic_problem()
    expected, hessian = exact_implicit_gradient(problem)
    alpha = 1.0 / float(torch.linalg.eigvalsh(hessian)[-1])
    found = implicit(problem, terms=20000, scale=alpha)
    for ours, exact in zip(found.total, expected):
        torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-10)


def test_more_terms_come_closer():
    problem = quadratic_problem()
    expected, hessian = exact_implicit_gradient(problem)
    alpha = 1.0 / float(torch.linalg.eigvalsh(hessian)[-1])
    errors = [
        float((implicit(problem, terms=terms, scale=alpha).total[0] - expected[0]).norm()) for terms in (0, 5, 50, 500)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 * errors[0]


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_no_terms_is_one_small_step(name):
    """With J = 0 and a small learning rate, stepping before or after looking at the meta-loss is the same."""
    problem = problem_of(HYPERPARAMETERS[name](), lr=1e-7)
    for ours, stepped in zip(implicit(problem, terms=0).total, one_step(problem).total):
        torch.testing.assert_close(ours, stepped, rtol=1e-4, atol=1e-14)


def test_direct_gradient_is_kept():
    problem = problem_of(GENERAL["temperature"](), head=linear_head(), lr=1e-9)
    torch.testing.assert_close(implicit(problem).total[0], one_step(problem).total[0], rtol=1e-5, atol=1e-12)
    assert implicit(problem).direct[0].abs() > 0
    assert implicit(problem_of(ScalarLabelSmoothing(K))).direct[0] == 0
