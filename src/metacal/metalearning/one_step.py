"""One-step hypergradient: back through one simulated gradient step on the head, as long as the training's or small."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from metacal.functional.hypergradient import head_gradient, label_hypergradient
from metacal.functional.inputs import as_rows, class_logits
from metacal.metalearning.head_tap import is_plain_linear
from metacal.metalearning.implicit import implicit
from metacal.metalearning.inner_loss import InnerLoss, is_plain_cross_entropy
from metacal.metalearning.problem import Hypergradient, MetaProblem, gradients, trained


def one_step(problem: MetaProblem) -> Hypergradient:
    r"""Gradient of the meta-loss after :math:`\phi' = \phi - \alpha P \nabla_\phi L_i(\phi, \omega)`, exactly.

    P is the optimiser's scaling. What is approximated: the effect of omega on training is that of the current step
    alone (earlier steps, momentum and weight decay are left out, P is held fixed), and only the head is stepped, unless
    the head is the whole model. A linear head with
    soft-label cross-entropy takes a closed form, without any graph over the head; everything else is differentiated
    through the step (`torch.func.functional_call` and autograd), with the same result to rounding.
    """
    inner = problem.inner()
    if has_closed_form(problem, inner):
        return closed_form(problem, inner)
    return through_graph(problem)


def small_step(problem: MetaProblem) -> Hypergradient:
    """`one_step` in the limit of a small step, in proportion to the learning rate: the meta-loss is that of now.

    A long step (a large learning rate, a summed loss, gradients that are clipped in truth) leaves the head where
    training will not, and the gradient there says little about training.
    """
    inner = problem.inner()
    if has_closed_form(problem, inner):
        return closed_form(problem, inner, looks_ahead=False)
    return implicit(problem, terms=0)


def has_closed_form(problem: MetaProblem, inner: InnerLoss) -> bool:
    """Whether the head is a plain linear layer and the inner loss soft-label cross-entropy (plus a penalty)."""
    is_trained = all(parameter.requires_grad for parameter in problem.head.parameters())
    is_linear = is_plain_linear(problem.head) and is_trained
    return is_linear and inner.is_soft_label_loss and is_plain_cross_entropy(problem.base_loss)


def through_graph(problem: MetaProblem) -> Hypergradient:
    """The general form: a graph over the head's step, and back through it."""
    parameters = problem.parameters()
    leaves = trained(parameters)
    inner_value = problem.inner_value(parameters)
    steps = torch.autograd.grad(inner_value, tuple(leaves.values()), create_graph=True, allow_unused=True)
    stepped = {
        name: leaf if step is None else leaf - problem.lr * problem.scaled(name, step)
        for (name, leaf), step in zip(leaves.items(), steps, strict=True)
    }
    return problem.through_and_direct({**parameters, **stepped})


def closed_form(problem: MetaProblem, inner: InnerLoss, *, looks_ahead: bool = True) -> Hypergradient:
    """The linear head: one backward pass of the meta-loss, after the step or before it, then two small products."""
    parameters = problem.parameters()
    features, step = problem.features.flatten(0, -2), problem.lr * problem.scale
    with torch.no_grad():
        probs = torch.softmax(_linear(parameters, features), dim=1)
    penalty_steps = _penalty_gradient(inner, parameters)
    at = _stepped(problem, parameters, probs, inner, penalty_steps) if looks_ahead else parameters

    meta_loss = problem.meta_value_of(_linear(at, problem.meta_features))
    found = gradients(meta_loss, (*at.values(), *problem.omega))
    pulls = {name: problem.scaled(name, pull) for name, pull in zip(at, found[: len(at)], strict=True)}
    direct = found[len(at) :]

    # To first order in omega, the meta-loss changes as this scalar does.
    change = meta_loss.new_zeros(())
    if inner.targets.requires_grad:
        pull_on_labels = label_hypergradient(probs, features, pulls["weight"], pulls.get("bias"))
        change = change + step * (inner.targets * pull_on_labels).sum()
    for name, penalty_step in penalty_steps.items():
        change = change - step * (pulls[name] * penalty_step).sum()
    return Hypergradient(gradients(change, problem.omega), direct, meta_loss.detach())


def _linear(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The logits of a linear head, ``(n, K)``: what a functional call of it returns, in a fraction of the time."""
    return class_logits(as_rows(nn.functional.linear(features, parameters["weight"], parameters.get("bias"))))


@torch.no_grad()
def _stepped(
    problem: MetaProblem,
    parameters: dict[str, Tensor],
    probs: Tensor,
    inner: InnerLoss,
    penalty_steps: dict[str, Tensor],
) -> dict[str, Tensor]:
    """The head after the step, as fresh leaves."""
    features, step = problem.features.flatten(0, -2), problem.lr * problem.scale
    soft_labels = _as_soft_labels(inner.targets, probs)
    loss_steps = dict(
        zip(("weight", "bias"), head_gradient(probs, soft_labels, features, len(parameters["weight"])), strict=True)
    )
    return {
        name: (value - step * problem.scaled(name, loss_steps[name] + penalty_steps.get(name, 0.0))).requires_grad_()
        for name, value in parameters.items()
    }


def _as_soft_labels(targets: Tensor, probs: Tensor) -> Tensor:
    if targets.is_floating_point():
        return targets
    return nn.functional.one_hot(targets, probs.shape[1]).to(probs.dtype)


def _penalty_gradient(inner: InnerLoss, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradient of the penalty with respect to the head, by name, still a function of omega; empty without a penalty."""
    if inner.penalty is None:
        return {}
    found = torch.autograd.grad(inner.penalty(parameters), tuple(parameters.values()), create_graph=True)
    return dict(zip(parameters, found, strict=True))
