"""Every hyper-parameter and every estimator against differences that take no derivative with respect to omega."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.metalearning.problems import (
    K,
    bilevel_meta_loss,
    central_differences,
    hierarchical,
    linear_head,
    problem_of,
    random_scales,
    randomised,
)

from metacal import metalearning
from metacal.metalearning import (
    GammaNet,
    HierarchicalLabelSmoothing,
    LearnableFocalGamma,
    LearnableTemperature,
    LogitPenalty,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    UnitwiseL2,
    VectorLabelSmoothing,
)
from metacal.metalearning.estimators import ESTIMATORS, implicit, trained
from metacal.metalearning.hyperparameter import Hyperparameter

MAKERS = {
    "scalar": lambda: ScalarLabelSmoothing(K),
    "vector": lambda: VectorLabelSmoothing(K),
    "non_uniform": lambda: NonUniformLabelSmoothing(K),
    "non_uniform_uniform": lambda: NonUniformLabelSmoothing(K, initial="uniform"),
    "hierarchical": lambda: HierarchicalLabelSmoothing(K),
    "l2": lambda: UnitwiseL2(linear_head()),
    "temperature": LearnableTemperature,
    "temperature_in_training": lambda: LearnableTemperature(in_training=True),
    "penalty": lambda: LogitPenalty(K, share=0.1),
    "gamma": lambda: LearnableFocalGamma(K),
    "gamma_per_class": lambda: LearnableFocalGamma(K, per_class=True),
    "gamma_net": lambda: GammaNet(K, hidden=3),
}


def at_start(hyperparameters):
    return hyperparameters


def at_bound(hyperparameters, side):
    """Every parameter on its bound; one without is left inside."""
    randomised(hyperparameters)
    for name, bounds in hyperparameters.bounds().items():
        if bounds[side] is not None:
            hyperparameters.get_parameter(name).data.fill_(bounds[side])
    return hyperparameters


def inside(hyperparameters):
    """Off every bound; strengths that add up to more than the most would not be."""
    return hierarchical() if isinstance(hyperparameters, HierarchicalLabelSmoothing) else randomised(hyperparameters)


PLACES = {
    "start": at_start,
    "inside": inside,
    "lowest": lambda hyperparameters: at_bound(hyperparameters, 0),
    "highest": lambda hyperparameters: at_bound(hyperparameters, 1),
}


def inner_gradient(problem):
    """Gradient of the training loss with respect to the head, flat."""
    parameters = problem.parameters()
    leaves = tuple(trained(parameters).values())
    found = torch.autograd.grad(problem.inner_value(parameters), leaves, allow_unused=True)
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for g, p in zip(found, leaves)])


def flat_scales(problem):
    """What the optimiser multiplies each of the head's numbers by."""
    leaves = trained(problem.parameters())
    return torch.cat([problem.scaled(name, torch.ones_like(leaf)).flatten() for name, leaf in leaves.items()]).detach()


def flat_meta_gradient(problem):
    parameters = problem.parameters()
    leaves = tuple(trained(parameters).values())
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(problem.meta_value(parameters), leaves)])


def inner_hessian(problem):
    leaves = {name: value.detach() for name, value in trained(problem.parameters()).items()}
    sizes = [value.numel() for value in leaves.values()]

    def value_at(flat):
        parts = zip(leaves, torch.split(flat, sizes))
        return problem.inner_value({name: part.view(leaves[name].shape) for name, part in parts})

    return torch.autograd.functional.hessian(value_at, torch.cat([value.flatten() for value in leaves.values()]))


def direct_differences(problem, size):
    def meta_loss():
        with torch.no_grad():
            return problem.meta_value(problem.parameters())

    return central_differences(problem, meta_loss, size)


def neumann_differences(problem, size, terms):
    """The Neumann sum with a dense Hessian, along differences of the inner gradient in omega."""
    vector, scales = flat_meta_gradient(problem), flat_scales(problem)
    total, hessian = vector.clone(), inner_hessian(problem) if terms else None
    for _ in range(terms):
        vector = vector - problem.lr * hessian @ (scales * vector)
        total = total + vector
    through = central_differences(problem, lambda: inner_gradient(problem) @ (scales * total), size)
    direct = direct_differences(problem, size)
    return [d - problem.lr * t for t, d in zip(through, direct)]


def evograd_differences(problem, size, population=2, noise=0.1, temperature=1.0):
    """The meta-loss at the weighted mean of the same perturbed heads."""
    parameters = problem.parameters()
    roots = {name: problem.scaled(name, torch.ones_like(value)).sqrt() for name, value in parameters.items()}
    torch.manual_seed(0)
    members = {
        name: value.detach() + noise * roots[name] * torch.randn(population, *value.shape, dtype=value.dtype)
        for name, value in trained(parameters).items()
    }

    def mean_head():
        losses = [
            problem.inner_value({**parameters, **{name: stack[i] for name, stack in members.items()}})
            for i in range(population)
        ]
        weights = torch.softmax(-torch.stack(losses) / temperature, dim=0)
        return {name: torch.tensordot(weights, stack, dims=1) for name, stack in members.items()}

    here = {name: value.detach().requires_grad_() for name, value in mean_head().items()}
    pulls = torch.autograd.grad(problem.meta_value({**parameters, **here}), tuple(here.values()))

    def pulled():
        with torch.no_grad():
            changes = [value - here[name] for name, value in mean_head().items()]
            return sum((pull * change).sum() for pull, change in zip(pulls, changes))

    def meta_loss():
        with torch.no_grad():
            return problem.meta_value({**parameters, **here})

    scale = problem.lr / ((population - 1) / population * noise**2 / temperature)
    through, direct = (central_differences(problem, of, size) for of in (pulled, meta_loss))
    return [scale * t + d for t, d in zip(through, direct)]


# With little noise its result is a small difference times a large number: little but rounding is left to compare.
FOUND = {**ESTIMATORS, "evograd": partial(ESTIMATORS["evograd"], noise=0.1, temperature=1.0)}
EXPECTED = {
    "one_step": lambda problem, size: central_differences(problem, lambda: bilevel_meta_loss(problem), size),
    "small_step": lambda problem, size: neumann_differences(problem, size, terms=0),
    "implicit": lambda problem, size: neumann_differences(problem, size, terms=10),
    "evograd": evograd_differences,
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MAKERS)
def test_the_hypergradient_is_the_finite_difference(name, place, estimator):
    compare(problem_of(PLACES[place](MAKERS[name]().double()), lr=0.3), name, estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", MAKERS)
def test_so_it_is_with_the_scales_of_an_optimiser(name, estimator):
    """Each number of the head moves at a rate of its own; without the scales the result is another."""
    head = linear_head()
    problem = problem_of(PLACES["inside"](MAKERS[name]().double()), head, lr=0.3, scales=random_scales(head))
    compare(problem, name, estimator)
    if name != "temperature":  # which does not act through training
        torch.manual_seed(0)
        ours, plain = (FOUND[estimator](each).through[0] for each in (problem, replace(problem, scales={})))
        assert not torch.allclose(ours, plain, rtol=1e-3, atol=0.0)


class Straight(HierarchicalLabelSmoothing):
    """Strengths that are not cut off around where they are: what the gradient is said to be that of."""

    def __init__(self, smoothing):
        super().__init__(smoothing.num_classes)
        self.base, self.deviation, self.affinity = smoothing.base, smoothing.deviation, smoothing.affinity
        self.offset = (smoothing.strength - smoothing.base - smoothing.deviation).detach()

    @property
    def strength(self):
        return self.base + self.deviation + self.offset


def compare(problem, name, estimator):
    assert set(ESTIMATORS) == set(EXPECTED)
    # A row of zeros in the distribution is normalised by epsilon = 1e-6 alone: the step must stay well inside of that.
    is_empty_row = name.startswith("non_uniform") and bool((problem.hyperparameters.distribution == 0).all())
    size, rtol, atol = (1e-9, 1e-4, 2e-6) if is_empty_row else (1e-5, 1e-4, 1e-7)
    torch.manual_seed(0)
    found = FOUND[estimator](problem).total
    if isinstance(problem.hyperparameters, HierarchicalLabelSmoothing):
        problem = replace(problem, hyperparameters=Straight(problem.hyperparameters))
    for ours, numeric in zip(found, EXPECTED[estimator](problem, size)):
        torch.testing.assert_close(ours, numeric, rtol=rtol, atol=atol * max(1.0, float(numeric.abs().max())))


def test_gamma_at_its_start_pulls_as_just_beside_it():
    """A derivative that is lost at gamma = 0 alone would turn the first meta steps around."""
    hypergradients = []
    for gamma in (0.0, 1e-9):
        hyperparameters = LearnableFocalGamma(K).double()
        hyperparameters.gamma.data.fill_(gamma)
        problem = problem_of(hyperparameters)
        hypergradients.append([estimate(problem).total[0] for estimate in (ESTIMATORS["one_step"], implicit)])
    for start, beside in zip(*hypergradients):
        torch.testing.assert_close(start, beside, rtol=1e-6, atol=1e-12)


def test_every_hyperparameter_is_in_the_table():
    exported = {value for name in metalearning.__all__ if isinstance(value := getattr(metalearning, name), type)}
    bases = {Hyperparameter, metalearning.LabelSmoothingHyperparameter}
    wanted = {each for each in exported if issubclass(each, Hyperparameter)} - bases
    assert {type(make()) for make in MAKERS.values()} >= wanted
    assert set(metalearning.HYPERPARAMETERS.values()) == wanted
