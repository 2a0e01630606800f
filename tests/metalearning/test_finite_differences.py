"""The hypergradient of every hyper-parameter against differences that take no derivative with respect to omega."""

from dataclasses import replace

import pytest
import torch
from tests.metalearning.problems import (
    K,
    finite_differences,
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
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.through_head import one_step

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


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MAKERS)
def test_the_hypergradient_is_the_finite_difference(name, place):
    compare(problem_of(PLACES[place](MAKERS[name]().double()), lr=0.3), name)


@pytest.mark.parametrize("name", MAKERS)
def test_so_it_is_with_the_scales_of_an_optimiser(name):
    """Each number of the head moves at a rate of its own; without the scales the result is another."""
    head = linear_head()
    problem = problem_of(PLACES["inside"](MAKERS[name]().double()), head, lr=0.3, scales=random_scales(head))
    compare(problem, name)
    if name != "temperature":  # which does not act through training
        ours, plain = (one_step(each).through[0] for each in (problem, replace(problem, scales={})))
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


def compare(problem, name):
    # A row of zeros in the distribution is normalised by epsilon = 1e-6 alone: the step must stay well inside of that.
    is_empty_row = name.startswith("non_uniform") and bool((problem.hyperparameters.distribution == 0).all())
    size, rtol, atol = (1e-9, 1e-4, 2e-6) if is_empty_row else (1e-5, 1e-4, 1e-7)
    found = one_step(problem).total
    if isinstance(problem.hyperparameters, HierarchicalLabelSmoothing):
        problem = replace(problem, hyperparameters=Straight(problem.hyperparameters))
    for ours, numeric in zip(found, finite_differences(problem, size)):
        torch.testing.assert_close(ours, numeric, rtol=rtol, atol=atol * max(1.0, float(numeric.abs().max())))


def test_gamma_at_its_start_pulls_as_just_beside_it():
    """A derivative that is lost at gamma = 0 alone would turn the first meta steps around."""
    hypergradients = []
    for gamma in (0.0, 1e-9):
        hyperparameters = LearnableFocalGamma(K).double()
        hyperparameters.gamma.data.fill_(gamma)
        problem = problem_of(hyperparameters)
        hypergradients.append(one_step(problem).total[0])
    torch.testing.assert_close(*hypergradients, rtol=1e-6, atol=1e-12)


def test_every_hyperparameter_is_in_the_table():
    exported = {value for name in metalearning.__all__ if isinstance(value := getattr(metalearning, name), type)}
    bases = {Hyperparameter, metalearning.LabelSmoothingHyperparameter}
    wanted = {each for each in exported if issubclass(each, Hyperparameter)} - bases
    assert {type(make()) for make in MAKERS.values()} >= wanted
    ours = {each for each in metalearning.HYPERPARAMETERS.values() if each.__module__.startswith("metacal.")}
    assert ours == wanted  # examples of the documentation may have added theirs
