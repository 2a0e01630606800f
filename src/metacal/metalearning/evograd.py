"""EvoGrad: a hypergradient from a population of perturbed heads, without second derivatives (Bohdal et al. 2021)."""

import torch
from torch import Tensor
from torch.func import vmap

from metacal.errors import InvalidValueError
from metacal.metalearning.problem import Hypergradient, MetaProblem, trained


def evograd(
    problem: MetaProblem, *, population: int = 2, noise: float = 1e-3, temperature: float = 0.05
) -> Hypergradient:
    r"""Gradient through the fitness-weighted mean of perturbed heads.

    Heads :math:`\phi_i = \phi + \sigma \sqrt{P} \epsilon_i`, P the optimiser's scaling, with inner losses
    :math:`\ell_i(\omega)` are averaged with weights :math:`\mathrm{softmax}(-\ell / \tau)`. For small :math:`\sigma`
    that mean is a gradient step from :math:`\phi + \sigma \bar\epsilon`, of expected size
    :math:`\frac{N - 1}{N} \frac{\sigma^2}{\tau}`; the result is divided by that size and multiplied by the inner
    learning rate, so that it estimates what `small_step` computes.

    What is approximated: the inner gradient, by random finite differences (its variance falls with the population), and
    the step, taken as small: the meta-loss is looked at around the current head instead of after a step.

    Args:
        problem: what to differentiate.
        population: N >= 2.
        noise: sigma.
        temperature: tau.
    """
    if population < 2:
        raise InvalidValueError(f"`population` must be an integer >= 2, got {population}.")
    parameters = problem.parameters()
    members = {
        name: value.detach()
        + noise
        * _root(problem, name, value)
        * torch.randn(population, *value.shape, dtype=value.dtype, device=value.device)
        for name, value in trained(parameters).items()
    }

    def loss_of(member: dict[str, Tensor]) -> Tensor:
        return problem.inner_value({**parameters, **member})

    losses: Tensor = vmap(loss_of, randomness="different")(members)
    weights = torch.softmax(-losses / temperature, dim=0)
    mean = {name: torch.tensordot(weights, stack, dims=1) for name, stack in members.items()}
    found = problem.through_and_direct({**parameters, **mean})
    size = (population - 1) / population * noise**2 / temperature
    return found._replace(through=tuple(part * (problem.lr / size) for part in found.through))


def _root(problem: MetaProblem, name: str, value: Tensor) -> Tensor:
    """The root of the optimiser's scale: noise of that size makes the mean step one of that scale."""
    return problem.scaled(name, torch.ones_like(value.detach())).sqrt()
