"""Implicit hypergradient: as if the inner training had been run to its end (Lorraine et al. 2020)."""

import torch

from metacal.metalearning.problem import Hypergradient, MetaProblem, gradients, trained


def implicit(problem: MetaProblem, *, terms: int = 10, scale: float | None = None) -> Hypergradient:
    r"""Gradient by the implicit function theorem: :math:`-\nabla_\phi L_o H^{-1} \partial_\omega \nabla_\phi L_i`.

    What is approximated: the head is taken to be at an optimum of the inner loss, of which the current batch stands for
    the whole; and :math:`H^{-1} v` by the first terms of the Neumann series
    :math:`\alpha P \sum_{j=0}^{J} (I - \alpha H P)^j v` with P the optimiser's scaling, which converges if
    :math:`\alpha` is below 2 over the largest curvature. With J = 0 it is `small_step`: the meta-loss is taken before
    the step instead of after it.

    Args:
        problem: what to differentiate.
        terms: J.
        scale: alpha; None takes the inner learning rate, to which the gradient is then in proportion.
    """
    alpha = problem.lr if scale is None else scale
    parameters = problem.parameters()
    names, leaves = tuple(trained(parameters)), tuple(trained(parameters).values())
    meta_loss = problem.meta_value(parameters)
    found = gradients(meta_loss, (*leaves, *problem.omega))
    vector, direct = found[: len(leaves)], found[len(leaves) :]

    inner_value = problem.inner_value(parameters)
    unused_too = torch.autograd.grad(inner_value, leaves, create_graph=True, allow_unused=True)
    inner_grads = tuple(
        torch.zeros_like(leaf) if grad is None else grad for grad, leaf in zip(unused_too, leaves, strict=True)
    )
    curved_grads = tuple(grad for grad in inner_grads if grad.requires_grad)
    total = vector
    for _ in range(terms):
        scaled = tuple(problem.scaled(name, v) for name, v in zip(names, vector, strict=True))
        pulls = tuple(v for v, grad in zip(scaled, inner_grads, strict=True) if grad.requires_grad)
        curved = torch.autograd.grad(curved_grads, leaves, pulls, retain_graph=True, allow_unused=True)
        vector = tuple(v if c is None else v - alpha * c for v, c in zip(vector, curved, strict=True))
        total = tuple(t + v for t, v in zip(total, vector, strict=True))

    parts = zip(names, inner_grads, total, strict=True)
    change = -alpha * torch.stack([(grad * problem.scaled(name, part)).sum() for name, grad, part in parts]).sum()
    return Hypergradient(gradients(change, problem.omega), direct, meta_loss.detach())
