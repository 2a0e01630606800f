"""`MetaProblem`: what the hypergradient of a step on the head depends on, and its estimators by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice
from metacal.functional.inputs import as_rows, at_least_float32, class_logits
from metacal.losses import Loss
from metacal.metalearning.head_tap import is_plain_linear
from metacal.metalearning.hyperparameter import START, Hyperparameter, InnerLoss, Phase, is_plain_cross_entropy
from metacal.metalearning.meta_task import Hypergradient, filled, gradients, meta_value
from metacal.metalearning.optimizer_step import scaled


def logit_gradient(probs: Tensor, soft_labels: Tensor) -> Tensor:
    """``(n, K)``: gradient of the summed soft-label cross-entropy with respect to the logits, ``S p - s``."""
    return soft_labels.sum(dim=1, keepdim=True) * probs - soft_labels


def head_gradient(probs: Tensor, soft_labels: Tensor, features: Tensor, num_outputs: int) -> tuple[Tensor, Tensor]:
    """Gradient of the summed soft-label cross-entropy with respect to weight and bias of a linear head.

    The weight has ``num_outputs`` rows: K, or 1 for a binary head, whose one logit belongs to the last class.
    """
    residuals = logit_gradient(probs, soft_labels)[:, -num_outputs:].to(features.dtype)
    return residuals.T @ features, residuals.sum(dim=0)


def label_hypergradient(probs: Tensor, features: Tensor, weight_grad: Tensor, bias_grad: Tensor | None) -> Tensor:
    """``(n, K)``: gradient with respect to s of ``L(head - (S p - s)^T h)``: a step of size 1 on the summed loss.

    ``weight_grad``, ``(K, d)`` or ``(1, d)`` for a binary head, is the gradient of L at the stepped weight.

    Examples:
        >>> import torch
        >>> probs, features = torch.tensor([[0.5, 0.5]]), torch.tensor([[2.0]])
        >>> label_hypergradient(probs, features, torch.tensor([[1.0], [0.0]]), None).tolist()
        [[1.0, -1.0]]
    """
    along = features @ weight_grad.T
    if bias_grad is not None:
        along = along + bias_grad
    along = class_logits(along)  # a binary head's one logit stands for the pair (0, z)
    return along - (probs * along).sum(dim=1, keepdim=True)


@dataclass(frozen=True)
class MetaProblem:
    """Minimise over omega the meta-objective of a head that was trained with omega.

    Attributes:
        head: the module that is stepped: the classifier, or a whole small model.
        features: what the head was given for the training batch, ``(n, ...)``, without history.
        meta_features: the same for the meta batch, ``(m, ...)``.
        lr: learning rate of the inner step.
        phase: where the training is.
        reduction: ``"mean"`` or ``"sum"``, of the inner loss.
        scales: what the optimiser multiplies the gradient of each of the head's parameters by, in units of ``lr``, by
            name; 1 for those not named.
    """

    head: nn.Module
    hyperparameters: Hyperparameter
    base_loss: Loss
    objective: Loss
    features: Tensor
    labels: Tensor
    meta_features: Tensor
    meta_labels: Tensor
    lr: float
    reduction: str
    num_classes: int
    scales: Mapping[str, float | Tensor] = field(default_factory=dict)
    phase: Phase = START

    @property
    def omega(self) -> tuple[nn.Parameter, ...]:
        """What is learned: the hyper-parameters that require a gradient."""
        return tuple(self.hyperparameters.omega().values())

    @property
    def scale(self) -> float:
        """What the summed inner loss is multiplied by: 1, or 1 / n for an averaged one."""
        return 1.0 / len(self.labels) if self.reduction == "mean" else 1.0

    def inner(self) -> InnerLoss:
        """The training loss with the slots that omega fills."""
        plain = InnerLoss.plain(self.labels, self.num_classes, self.phase)
        return self.hyperparameters(plain)  # type: ignore[no-any-return]

    def parameters(self) -> dict[str, Tensor]:
        """The head's parameters as fresh leaves, float32 or wider: nothing reaches the model's own ``.grad``.

        Those that are not trained do not require a gradient here either, and no step is simulated on them.
        """
        named = self.head.named_parameters()
        return {n: at_least_float32(value.detach()).requires_grad_(value.requires_grad) for n, value in named}

    def logits(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """The head's output with other parameters in place, ``(n, K)``, float32 or wider."""
        floats = {n: at_least_float32(value) for n, value in self.head.named_buffers() if value.is_floating_point()}
        return class_logits(as_rows(functional_call(self.head, {**floats, **parameters}, (features,))))

    def inner_value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The (reduced) training loss at given parameters."""
        return self.inner().value(self.base_loss, self.logits(parameters, self.features), parameters) * self.scale

    def meta_value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The meta-loss at given parameters."""
        return self.meta_value_of(self.logits(parameters, self.meta_features))

    def meta_value_of(self, meta_logits: Tensor) -> Tensor:
        """The meta-loss of given held-out logits."""
        return meta_value(self.objective, self.hyperparameters, meta_logits, self.meta_labels)

    @torch.no_grad()
    def losses(self) -> Tensor:
        """``(2,)``: cross-entropy of the training batch and of the meta batch, as the head is."""
        parameters = self.parameters()
        batches = ((self.features, self.labels), (self.meta_features, self.meta_labels))
        logits = (self.logits(parameters, features) for features, _ in batches)
        pairs = zip(logits, (labels for _, labels in batches), strict=True)
        return torch.stack([nn.functional.cross_entropy(rows, labels) for rows, labels in pairs])

    def scaled(self, name: str, gradient: Tensor) -> Tensor:
        """A gradient as the optimiser scales it, per unit of ``lr``."""
        return scaled(self.scales.get(name, 1.0), gradient)

    def through_and_direct(self, parameters: Mapping[str, Tensor]) -> Hypergradient:
        """Gradient of the meta-loss at parameters that depend on omega, split at the held-out logits."""
        meta_logits = self.logits(parameters, self.meta_features)
        leaf = meta_logits.detach().requires_grad_()
        meta_loss = self.meta_value_of(leaf)
        pull, *direct = gradients(meta_loss, (leaf, *self.omega))
        through = gradients((meta_logits * pull).sum(), self.omega)
        return Hypergradient(through, tuple(direct), meta_loss.detach())


Estimator = Callable[[MetaProblem], Hypergradient]


def one_step(problem: MetaProblem) -> Hypergradient:
    r"""Gradient of the meta-loss after :math:`\phi' = \phi - \alpha P \nabla_\phi L_i(\phi, \omega)`, exactly.

    P is the optimiser's scaling. What is approximated: the effect of omega on training is that of the current step
    alone (earlier steps, momentum and weight decay are left out, P is held fixed), and only the head is stepped, unless
    the head is the whole model. A linear head with soft-label cross-entropy takes a closed form, without any graph over
    the head; everything else is differentiated through the step (`torch.func.functional_call` and autograd), with the
    same result to rounding.
    """
    inner = problem.inner()
    return closed_form(problem, inner) if has_closed_form(problem, inner) else through_graph(problem)


def small_step(problem: MetaProblem) -> Hypergradient:
    """`one_step` in the limit of a small step, in proportion to the learning rate: the meta-loss is that before it.

    A long step (a large learning rate, a summed loss, gradients that are clipped in truth) leaves the head where
    training will not, and the gradient there says little about training.
    """
    inner = problem.inner()
    if has_closed_form(problem, inner):
        return closed_form(problem, inner, looks_ahead=False)
    return implicit(problem, terms=0)


def implicit(problem: MetaProblem, *, terms: int = 10, scale: float | None = None) -> Hypergradient:
    r"""Gradient by the implicit function theorem: :math:`-\nabla_\phi L_o H^{-1} \partial_\omega \nabla_\phi L_i`.

    As if the inner training had been run to its end (Lorraine et al. 2020). What is approximated: the head is taken to
    be at an optimum of the inner loss, of which the current batch stands for the whole; and :math:`H^{-1} v` by the
    first terms of the Neumann series :math:`\alpha P \sum_{j=0}^{J} (I - \alpha H P)^j v` with P the optimiser's
    scaling, which converges if :math:`\alpha` is below 2 over the largest curvature. With J = 0 it is `small_step`.

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
    inner_grads = filled(torch.autograd.grad(inner_value, leaves, create_graph=True, allow_unused=True), leaves)
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


def evograd(
    problem: MetaProblem, *, population: int = 2, noise: float = 1e-3, temperature: float = 0.05
) -> Hypergradient:
    r"""Gradient through the fitness-weighted mean of perturbed heads, without second derivatives (Bohdal et al. 2021).

    Heads :math:`\phi_i = \phi + \sigma \sqrt{P} \epsilon_i`, P the optimiser's scaling, with inner losses
    :math:`\ell_i(\omega)` are averaged with weights :math:`\mathrm{softmax}(-\ell / \tau)`. For small :math:`\sigma`
    that mean is a gradient step from :math:`\phi + \sigma \bar\epsilon`, of expected size
    :math:`\frac{N - 1}{N} \frac{\sigma^2}{\tau}`; the result is divided by that size and multiplied by the inner
    learning rate, so that it estimates what `small_step` computes. What is approximated: the inner gradient, by random
    finite differences (its variance falls with the population), and the step, taken as small.

    Args:
        problem: what to differentiate.
        population: N >= 2.
        noise: sigma.
        temperature: tau.
    """
    if population < 2:
        raise InvalidValueError(f"`population` must be an integer >= 2, got {population}.")
    parameters = problem.parameters()
    members = {}
    for name, value in trained(parameters).items():
        root = problem.scaled(name, torch.ones_like(value.detach())).sqrt()
        random = torch.randn(population, *value.shape, dtype=value.dtype, device=value.device)
        members[name] = value.detach() + noise * root * random

    def loss_of(member: dict[str, Tensor]) -> Tensor:
        return problem.inner_value({**parameters, **member})

    losses: Tensor = vmap(loss_of, randomness="different")(members)
    weights = torch.softmax(-losses / temperature, dim=0)
    mean = {name: torch.tensordot(weights, stack, dims=1) for name, stack in members.items()}
    found = problem.through_and_direct({**parameters, **mean})
    size = (population - 1) / population * noise**2 / temperature
    return found._replace(through=tuple(part * (problem.lr / size) for part in found.through))


ESTIMATORS: dict[str, Estimator] = {
    function.__name__: function for function in (one_step, small_step, implicit, evograd)
}


def find_estimator(estimator: str | Estimator) -> Estimator:
    """An estimator by its name, or as it is (`functools.partial` sets its options)."""
    if isinstance(estimator, str):
        check_choice("estimator", estimator, tuple(ESTIMATORS))
        return ESTIMATORS[estimator]
    if not callable(estimator):
        raise InvalidTypeError(f"`estimator` must be a name or a function, got {type(estimator).__name__}.")
    return estimator


def through_graph(problem: MetaProblem) -> Hypergradient:
    """The general form of `one_step`: a graph over the head's step, and back through it."""
    parameters = problem.parameters()
    leaves = trained(parameters)
    inner_value = problem.inner_value(parameters)
    steps = torch.autograd.grad(inner_value, tuple(leaves.values()), create_graph=True, allow_unused=True)
    stepped = {
        name: leaf if step is None else leaf - problem.lr * problem.scaled(name, step)
        for (name, leaf), step in zip(leaves.items(), steps, strict=True)
    }
    return problem.through_and_direct({**parameters, **stepped})


def has_closed_form(problem: MetaProblem, inner: InnerLoss) -> bool:
    """Whether the head is a plain linear layer and the inner loss soft-label cross-entropy (plus a penalty)."""
    is_trained = all(parameter.requires_grad for parameter in problem.head.parameters())
    is_linear = is_plain_linear(problem.head) and is_trained
    return is_linear and inner.is_soft_label_loss and is_plain_cross_entropy(problem.base_loss)


def closed_form(problem: MetaProblem, inner: InnerLoss, *, looks_ahead: bool = True) -> Hypergradient:
    """The linear head: one backward pass of the meta-loss, after the step or before it, then two small products."""
    at = parameters = problem.parameters()
    features, step = problem.features.flatten(0, -2), problem.lr * problem.scale
    with torch.no_grad():
        probs = torch.softmax(_linear(parameters, features), dim=1)
    penalty_steps: dict[str, Tensor] = {}  # by name, still functions of omega
    if inner.penalty is not None:
        found = torch.autograd.grad(inner.penalty(parameters), tuple(parameters.values()), create_graph=True)
        penalty_steps = dict(zip(parameters, found, strict=True))
    if looks_ahead:
        with torch.no_grad():
            is_soft = inner.targets.is_floating_point()
            soft = inner.targets if is_soft else nn.functional.one_hot(inner.targets, probs.shape[1]).to(probs.dtype)
            weight, bias = head_gradient(probs, soft, features, len(parameters["weight"]))
            loss_steps = {"weight": weight, "bias": bias}
            steps = {name: loss_steps[name] + penalty_steps.get(name, 0.0) for name in parameters}
            at = {name: value - step * problem.scaled(name, steps[name]) for name, value in parameters.items()}
        at = {name: value.requires_grad_() for name, value in at.items()}

    meta_loss = problem.meta_value_of(_linear(at, problem.meta_features))
    found = gradients(meta_loss, (*at.values(), *problem.omega))
    pulls = {name: problem.scaled(name, pull) for name, pull in zip(at, found[: len(at)], strict=True)}

    # To first order in omega, the meta-loss changes as this scalar does.
    change = meta_loss.new_zeros(())
    if inner.targets.requires_grad:
        pull_on_labels = label_hypergradient(probs, features, pulls["weight"], pulls.get("bias"))
        change = change + step * (inner.targets * pull_on_labels).sum()
    for name, penalty_step in penalty_steps.items():
        change = change - step * (pulls[name] * penalty_step).sum()
    return Hypergradient(gradients(change, problem.omega), found[len(at) :], meta_loss.detach())


def _linear(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The logits of a linear head, ``(n, K)``: what a functional call of it returns, in a fraction of the time."""
    return class_logits(as_rows(nn.functional.linear(features, parameters["weight"], parameters.get("bias"))))


def trained(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that require a gradient."""
    return {name: value for name, value in parameters.items() if value.requires_grad}
