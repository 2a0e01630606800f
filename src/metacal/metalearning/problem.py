"""`MetaProblem`: all that the hypergradient of a step on the head needs, as a value. Estimators are functions of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metacal.errors import InvalidValueError
from metacal.functional.inputs import as_rows, at_least_float32, class_logits
from metacal.losses import Loss
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss
from metacal.metalearning.optimizer_step import scaled


class Hypergradient(NamedTuple):
    """Gradient of the meta-loss with respect to omega; tensors in the order of ``hyperparameters.omega()``.

    Attributes:
        through: the part that acts through the training step; proportional to its size.
        direct: the part that acts on the held-out logits themselves, not through the training step.
        meta_loss: scalar, at the point where the estimator evaluated it.
        judged: the held-out samples that were judged, as they can be judged again later, and their labels.
    """

    through: tuple[Tensor, ...]
    direct: tuple[Tensor, ...]
    meta_loss: Tensor
    judged: tuple[Tensor, Tensor] | None = None

    @property
    def total(self) -> tuple[Tensor, ...]:
        """The gradient."""
        return tuple(a + b for a, b in zip(self.through, self.direct, strict=True))


@dataclass(frozen=True)
class MetaProblem:
    """Minimise over omega the meta-objective of a head that was trained with omega.

    Attributes:
        head: the module that is stepped: the classifier, or a whole small model.
        hyperparameters: omega.
        base_loss: training loss, one value per sample.
        objective: meta-objective, on held-out data with hard labels.
        features: what the head was given for the training batch, ``(n, ...)``, without history.
        labels: int64 ``(n,)``.
        meta_features: the same for the meta batch, ``(m, ...)``.
        meta_labels: int64 ``(m,)``.
        lr: learning rate of the inner step.
        reduction: ``"mean"`` or ``"sum"``, of the inner loss.
        num_classes: K.
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
        return self.hyperparameters(InnerLoss.plain(self.labels, self.num_classes))  # type: ignore[no-any-return]

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


def meta_value(objective: Loss, hyperparameters: Hyperparameter, logits: Tensor, labels: Tensor) -> Tensor:
    """What held-out logits are judged by: one number."""
    value: Tensor = objective(hyperparameters.meta_logits(logits), labels)
    if value.ndim:
        raise InvalidValueError(
            f"`objective` must return one number, got shape {tuple(value.shape)}; set its reduction to 'mean'."
        )
    return value


def gradients(value: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of a scalar; zeros where it does not depend on an input at all."""
    found = torch.autograd.grad(value, inputs, allow_unused=True) if value.requires_grad else [None] * len(inputs)
    return filled(found, inputs)


def filled(found: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients, with zeros in place of those that are missing."""
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True))


def trained(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that require a gradient."""
    return {name: value for name, value in parameters.items() if value.requires_grad}
