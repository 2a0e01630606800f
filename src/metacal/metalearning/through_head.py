"""The exact hypergradient of a simulated step on the layer that returns the logits, as in the paper.

`ThroughHead` runs the model and states the `MetaProblem`; `one_step` solves it.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, linear, one_hot

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.inputs import as_rows, at_least_float32, class_logits
from metacal.losses import CrossEntropyLoss, Loss
from metacal.metalearning.checks import class_count
from metacal.metalearning.gather import gather_batches
from metacal.metalearning.head_tap import HeadTap, is_plain_linear
from metacal.metalearning.hyperparameter import START, Hyperparameter, InnerLoss, Phase
from metacal.metalearning.meta_task import Hypergradient, MetaTask, gradients, meta_value
from metacal.metalearning.model_calls import Batch, call_model, eagerly, moved, unwrapped
from metacal.metalearning.optimizer_step import scaled


class ThroughHead:
    """Runs the model and stores the head's inputs, which determine a step on the head.

    Args:
        model: as it is trained.
        head: the layer inside it that returns the logits; a penalty is put on its parameters.
    """

    name = "head"
    runs_first = True
    """Whether the training batch is run before the meta step."""

    def __init__(self, model: nn.Module, head: nn.Module) -> None:
        self.model, self.penalised = model, head
        self._tap = HeadTap(head)
        self._has_compared_output = False

    def run(self, x: Any, model: nn.Module | None = None) -> tuple[Any, Tensor]:
        """Return the head's input for a batch, and its logits; both may carry history."""
        with self._tap.listening():
            output = call_model(self.model if model is None else model, x)
        given, logits = self.taken()
        if not self._has_compared_output:
            self._has_compared_output = True
            if changes_logits(output, logits):
                warnings.warn(
                    "The model changes its logits after the head; the loss is that of the head's output. "
                    "Name as `head` the module that includes the change.",
                    stacklevel=3,
                )
        return given, logits

    def watching(self) -> AbstractContextManager[list[Any]]:
        """Record the model run by a trainer inside; yields the list of logits so far."""
        return self._tap.listening()

    def taken(self, x: Any = None) -> tuple[Any, Tensor]:
        """Return the head's input (detached; as rows for a linear layer) and output inside `watching`."""
        call, logits = self._tap.take()
        if not isinstance(logits, Tensor):
            raise InvalidTypeError(f"`head` must return the logits as one tensor, got {type(logits).__name__}.")
        features = call.tensor().detach()
        return as_rows(features) if isinstance(self.penalised, nn.Linear) else features, logits

    def remove(self) -> None:
        """Remove the hooks."""
        self._tap.remove()

    def hypergradient(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> Hypergradient:
        """Compute the hypergradient from parts of a training batch (head inputs and labels) and a held-out batch."""
        problem = self._problem(task, parts, meta)
        precision = torch.autocast(problem.labels.device.type, enabled=False)
        with task.quietly(self.penalised, "train"), torch.enable_grad(), precision, eagerly():
            found = one_step(problem)
            losses = problem.losses()
        return found._replace(judged=(problem.meta_features, problem.meta_labels), losses=losses)

    def _problem(self, task: MetaTask, parts: Sequence[Batch], meta: Batch) -> "MetaProblem":
        head, model = self.penalised, unwrapped(self.model)
        if not any(parameter.requires_grad for parameter in head.parameters()):
            raise InvalidValueError("`head` must have a parameter that is trained, got none that requires a gradient.")
        if not task.optimizer.trains(head):
            raise InvalidValueError("`head` must be trained by `optimizer`, got one that it has no parameters of.")
        first = next(head.parameters())
        with task.quietly(model), torch.no_grad():
            meta_features, meta_logits = self.run(moved(meta[0], first.device), model)
        meta_labels = task.labels(moved(meta[1], first.device), meta_logits, "meta targets")
        features, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        dtype = at_least_float32(first.detach()).dtype  # that the head is simulated in
        batches = [(features, labels), (meta_features, meta_labels)]
        train, held_out = gather_batches([(x.to(dtype) if x.is_floating_point() else x, y) for x, y in batches])
        held_out = task.memory.filled_up(*held_out)
        scales = task.optimizer.scales(adaptive=task.outer.scaled)
        return MetaProblem(
            head=head,
            hyperparameters=task.hyperparameters,
            base_loss=task.base_loss,
            objective=task.objective,
            features=train[0],
            labels=train[1],
            meta_features=held_out[0],
            meta_labels=held_out[1],
            lr=task.optimizer.lr,
            reduction=task.reduction,
            num_classes=class_count(meta_logits),
            scales={name: scales.get(value, 0.0) for name, value in head.named_parameters() if value.requires_grad},
            looks_ahead=task.outer.looks_ahead,
            phase=task.phase(),
        )


@dataclass(frozen=True)
class MetaProblem:
    """Minimise over omega the meta-objective of a head that was trained with omega.

    Attributes:
        head: the module that is stepped: the classifier, or a whole small model.
        features: what the head was given for the training batch, ``(n, ...)``, without history.
        meta_features: the same for the meta batch, ``(m, ...)``.
        lr: learning rate of the simulated step.
        reduction: ``"mean"`` or ``"sum"``, of the training loss.
        scales: what the optimiser multiplies the gradient of each of the head's parameters by, in units of ``lr``, by
            name; 1 for those not named.
        looks_ahead: whether the meta-loss is that after the step; else that before it, the limit of a short step.
        phase: where the training is.
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
    looks_ahead: bool = True
    phase: Phase = START

    @property
    def omega(self) -> tuple[nn.Parameter, ...]:
        """The learned hyper-parameters, which require a gradient."""
        return tuple(self.hyperparameters.omega().values())

    @property
    def scale(self) -> float:
        """The factor of the summed training loss: 1, or 1 / n for a mean."""
        return 1.0 / len(self.labels) if self.reduction == "mean" else 1.0

    def inner(self) -> InnerLoss:
        """The training loss with omega's slots filled."""
        plain = InnerLoss.plain(self.labels, self.num_classes, self.phase)
        return self.hyperparameters(plain)  # type: ignore[no-any-return]

    def parameters(self) -> dict[str, Tensor]:
        """The head's parameters as new leaves, float32 or wider, so that the model's ``.grad`` is not touched.

        Those that are not trained do not require a gradient here either, and no step is simulated on them.
        """
        named = self.head.named_parameters()
        return {n: at_least_float32(value.detach()).requires_grad_(value.requires_grad) for n, value in named}

    def logits(self, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Return the head's output with other parameters, ``(n, K)``, float32 or wider."""
        floats = {n: at_least_float32(value) for n, value in self.head.named_buffers() if value.is_floating_point()}
        return class_logits(as_rows(functional_call(self.head, {**floats, **parameters}, (features,))))

    def inner_value(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the (reduced) training loss at given parameters."""
        return self.inner().value(self.base_loss, self.logits(parameters, self.features), parameters) * self.scale

    def meta_value(self, logits: Tensor) -> Tensor:
        """Return the meta-loss of held-out logits."""
        return meta_value(self.objective, self.hyperparameters, logits, self.meta_labels)

    def scaled(self, name: str, gradient: Tensor) -> Tensor:
        """Scale a gradient as the optimiser does, per unit of ``lr``."""
        return scaled(self.scales.get(name, 1.0), gradient)

    def judged_at(self, parameters: Mapping[str, Tensor], stepped: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The head's parameters at which the meta-loss is differentiated."""
        return stepped if self.looks_ahead else parameters

    @torch.no_grad()
    def losses(self) -> Tensor:
        """``(2,)``: cross-entropy of the training batch and of the meta batch, with the current head."""
        parameters = self.parameters()
        training = cross_entropy(self.logits(parameters, self.features), self.labels)
        held_out = cross_entropy(self.logits(parameters, self.meta_features), self.meta_labels)
        return torch.stack((training, held_out))


def one_step(problem: MetaProblem) -> Hypergradient:
    r"""Gradient of the meta-loss after :math:`\phi' = \phi - \alpha P \nabla_\phi L_i(\phi, \omega)`, exactly.

    P is the optimiser's scaling. A problem that does not look ahead has the meta-loss's gradient at :math:`\phi`
    instead, the limit of a short step: a long one (a large learning rate, a summed loss, gradients that are clipped in
    truth) leaves the head where training will not. What is approximated: the effect of omega on training is that of
    the current step alone (earlier steps, momentum and weight decay are left out, P is held fixed), and only the head
    is stepped. A linear head with soft-label cross-entropy takes a closed form, without any graph over the head;
    everything else is differentiated through the step, with the same result to rounding.
    """
    inner = problem.inner()
    return closed_form(problem, inner) if has_closed_form(problem, inner) else through_graph(problem)


def has_closed_form(problem: MetaProblem, inner: InnerLoss) -> bool:
    """Whether the head is a plain linear layer and the training loss soft-label cross-entropy (plus a penalty)."""
    base, head = problem.base_loss, problem.head
    is_linear = is_plain_linear(head) and all(parameter.requires_grad for parameter in head.parameters())
    is_cross_entropy = type(base) is CrossEntropyLoss and base.class_weights is None
    return is_linear and is_cross_entropy and inner.is_soft_label_loss


def closed_form(problem: MetaProblem, inner: InnerLoss) -> Hypergradient:
    """For a linear head: one backward pass of the meta-loss after the step, then two small products.

    With respect to the logits, the summed cross-entropy of soft labels s, of sum S, has the gradient ``S p - s``. A
    binary head has one logit, that of the last class.
    """
    parameters, step = problem.parameters(), problem.lr * problem.scale
    features = problem.features.flatten(0, -2)
    penalty_steps: dict[str, Tensor] = {}  # by name, still functions of omega
    if inner.penalty is not None:
        found = torch.autograd.grad(inner.penalty(parameters), tuple(parameters.values()), create_graph=True)
        penalty_steps = dict(zip(parameters, found, strict=True))
    with torch.no_grad():
        probs = torch.softmax(_linear(parameters, features), dim=1)
        is_soft = inner.targets.is_floating_point()
        soft = inner.targets if is_soft else one_hot(inner.targets, probs.shape[1]).to(probs.dtype)
        residuals = soft.sum(dim=1, keepdim=True) * probs - soft
        residuals = residuals[:, -len(parameters["weight"]) :].to(features.dtype)
        steps = {"weight": residuals.T @ features, "bias": residuals.sum(dim=0)}
        stepped = {
            name: value - step * problem.scaled(name, steps[name] + penalty_steps.get(name, 0.0))
            for name, value in parameters.items()
        }
    at = {name: value.detach().requires_grad_() for name, value in problem.judged_at(parameters, stepped).items()}

    meta_loss = problem.meta_value(_linear(at, problem.meta_features))
    found = gradients(meta_loss, (*at.values(), *problem.omega))
    pulls = {name: problem.scaled(name, pull) for name, pull in zip(at, found[: len(at)], strict=True)}

    # To first order in omega, the meta-loss changes as this scalar does.
    change = meta_loss.new_zeros(())
    if inner.targets.requires_grad:
        pull_on_logits = class_logits(features @ pulls["weight"].T + pulls.get("bias", 0.0))
        pull_on_labels = pull_on_logits - (probs * pull_on_logits).sum(dim=1, keepdim=True)
        change = change + step * (inner.targets * pull_on_labels).sum()
    for name, penalty_step in penalty_steps.items():
        change = change - step * (pulls[name] * penalty_step).sum()
    return Hypergradient(gradients(change, problem.omega), found[len(at) :], meta_loss.detach())


def through_graph(problem: MetaProblem) -> Hypergradient:
    """For any head: differentiate through a graph of its step."""
    parameters = problem.parameters()
    leaves = {name: value for name, value in parameters.items() if value.requires_grad}
    value = problem.inner_value(parameters)
    steps = torch.autograd.grad(value, tuple(leaves.values()), create_graph=True, allow_unused=True)
    stepped = {
        name: leaf if step is None else leaf - problem.lr * problem.scaled(name, step)
        for (name, leaf), step in zip(leaves.items(), steps, strict=True)
    }
    at = {name: value.detach().requires_grad_() for name, value in problem.judged_at(leaves, stepped).items()}
    meta_loss = problem.meta_value(problem.logits({**parameters, **at}, problem.meta_features))
    found = gradients(meta_loss, (*at.values(), *problem.omega))
    change = torch.stack([(stepped[name] * pull).sum() for name, pull in zip(at, found, strict=False)]).sum()
    return Hypergradient(gradients(change, problem.omega), found[len(at) :], meta_loss.detach())


def _linear(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Return the logits of a linear head, ``(n, K)``, faster than a functional call."""
    return class_logits(as_rows(linear(features, parameters["weight"], parameters.get("bias"))))


def changes_logits(output: Any, logits: Tensor) -> bool:
    """Whether a model's output has the logits' shape but is not logits, softmax or log-softmax."""
    if not isinstance(output, Tensor):
        output = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(output, Tensor) or output is logits or output.shape != logits.shape:
        return False
    ours, theirs = logits.detach().float(), output.detach().float()
    return not any(torch.allclose(theirs, same, atol=1e-3) for same in (ours, ours.log_softmax(-1), ours.softmax(-1)))
