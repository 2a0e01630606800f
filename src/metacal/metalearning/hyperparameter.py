"""`Hyperparameter`: what can be learned about the training; `InnerLoss`: the training loss, whose slots it fills.

A hyper-parameter does not know the others and the trainer knows none of them: each takes an `InnerLoss` and returns one
with a slot changed. Slots compose: soft labels of soft labels, transform after transform, weight times weight,
penalty plus penalty.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.inputs import as_rows, class_logits
from metacal.losses import CrossEntropyLoss, Loss

HYPERPARAMETERS: "dict[str, type[Hyperparameter]]" = {}
"""The classes by the names that specs use; a class enters under its ``name``."""

Bounds = dict[str, tuple[float | None, float | None]]
"""Lowest and highest feasible value by parameter; None is no bound."""


@dataclass(frozen=True)
class Phase:
    """Where the training is.

    Attributes:
        relative_lr: the learning rate in units of its highest value so far.
        overfitting: how far the model over-fits, in [0, 1]: 1 - training loss / held-out loss, on the device.
    """

    relative_lr: float = 1.0
    overfitting: Tensor | float = 1.0


START = Phase()


@dataclass(frozen=True)
class InnerLoss:
    """The loss of one training batch, as far as hyper-parameters can change it.

    Attributes:
        labels: int64 ``(n,)``, the true classes.
        num_classes: K; a model with one logit has K = 2.
        targets: what the base loss is given: the labels, or soft labels ``(n, K)``.
        logits_transform: applied to the logits before the base loss.
        sample_weight: maps (transformed) logits to one weight per sample, ``(n,)``.
        penalty: maps the head's parameters, by name, to a scalar that is added to the summed loss.
        logit_penalty: maps the logits, as the model returns them, to one addend per sample, ``(n,)``.
        phase: where the training is.
    """

    labels: Tensor
    num_classes: int
    targets: Tensor
    logits_transform: Callable[[Tensor], Tensor] | None = None
    sample_weight: Callable[[Tensor], Tensor] | None = None
    penalty: Callable[[Mapping[str, Tensor]], Tensor] | None = None
    logit_penalty: Callable[[Tensor], Tensor] | None = None
    phase: Phase = START

    @classmethod
    def plain(cls, labels: Tensor, num_classes: int, phase: Phase = START) -> "InnerLoss":
        """The loss of hard labels, with no slot filled yet."""
        return cls(labels, num_classes, targets=labels, phase=phase)

    def with_targets(self, targets: Tensor) -> "InnerLoss":
        """The same with other targets."""
        return replace(self, targets=targets)

    def with_transform(self, transform: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """The same with one more transform of the logits, after the earlier ones."""
        before = self.logits_transform
        after = transform if before is None else lambda logits: transform(before(logits))
        return replace(self, logits_transform=after)

    def with_weight(self, weight: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """The same with samples weighted once more."""
        before = self.sample_weight
        product = weight if before is None else lambda logits: before(logits) * weight(logits)
        return replace(self, sample_weight=product)

    def with_logit_penalty(self, penalty: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """The same with one more penalty on the logits."""
        before = self.logit_penalty
        total = penalty if before is None else lambda logits: before(logits) + penalty(logits)
        return replace(self, logit_penalty=total)

    def with_penalty(self, penalty: Callable[[Mapping[str, Tensor]], Tensor]) -> "InnerLoss":
        """The same with one more penalty added."""
        before = self.penalty
        total = penalty if before is None else lambda parameters: before(parameters) + penalty(parameters)
        return replace(self, penalty=total)

    def with_penalty_scaled(self, factor: float) -> "InnerLoss":
        """The same with its penalty multiplied."""
        penalty = self.penalty
        return self if penalty is None else replace(self, penalty=lambda parameters: factor * penalty(parameters))

    @property
    def is_soft_label_loss(self) -> bool:
        """Whether only the targets (and a penalty) differ from a plain loss, so that the closed form holds."""
        return self.logits_transform is None and self.sample_weight is None and self.logit_penalty is None

    def value(self, base: Loss, logits: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of the batch: ``sum_i (w_i base(z_i, t_i) + a_i) + penalty``.

        The penalty is one on ``parameters``, the addends a are that on the logits.

        ``base`` returns one value per sample, ``(n,)``; logits of shape ``(n, T, K)`` are those of n T samples.
        """
        wide = given = class_logits(as_rows(logits))
        if self.logits_transform is not None:
            wide = self.logits_transform(wide)
        losses: Tensor = base(wide, self.targets)
        if losses.shape != self.labels.shape:
            raise InvalidValueError(
                f"`base_loss` must return one value per sample, shape {tuple(self.labels.shape)}, got "
                f"{tuple(losses.shape)}; most losses do with reduction='none'."
            )
        if self.sample_weight is not None:
            losses = losses * self.sample_weight(wide)
        if self.logit_penalty is not None:
            losses = losses + self.logit_penalty(given)
        total = losses.sum()
        return total if self.penalty is None else total + self.penalty(parameters)


def is_plain_cross_entropy(base: Loss) -> bool:
    """Whether a base loss is unweighted cross-entropy, whose head gradient is known in closed form."""
    return type(base) is CrossEntropyLoss and base.class_weights is None


class Hyperparameter(nn.Module):
    """A module whose parameters (omega) shape the training loss.

    ``forward`` fills slots of an `InnerLoss`; functions put into slots must hold the tensors they use (not ``self``),
    so that they can be evaluated later with other values of omega in place. ``class Mine(Hyperparameter, name="mine")``
    makes it known to specs by that name.

    Attributes:
        num_classes: K, or None if the hyper-parameter does not depend on it.
        acts_on_meta_logits: whether `meta_logits` does anything.
    """

    num_classes: int | None = None
    acts_on_meta_logits: bool = False

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            HYPERPARAMETERS[name] = cls

    @classmethod
    def for_head(cls, head: nn.Module, num_classes: int) -> "Hyperparameter":
        """One for a model with this last layer and so many classes."""
        return cls(num_classes)

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill slots of the training loss."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(inner).")

    def meta_logits(self, logits: Tensor) -> Tensor:
        """What the meta-objective sees instead of the logits: the direct effect on held-out data, usually none."""
        return logits

    def omega(self) -> dict[str, nn.Parameter]:
        """What is learned: the parameters that require a gradient, by name."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def bounds(self) -> Bounds:
        """Lowest and highest feasible value of each parameter; None is no bound."""
        return {}

    def rates(self) -> dict[str, float]:
        """How fast parameters move, in units of the outer step's rate; 1 for those not named."""
        return {}

    def decays(self) -> dict[str, float]:
        """Share of a parameter that is forgotten in each training step, towards 0; 0 for those not named."""
        return {}

    @torch.no_grad()
    def project_(self) -> None:
        """Move every parameter to its nearest feasible value."""
        for name, (low, high) in self.bounds().items():
            self.get_parameter(name).clamp_(min=low, max=high)

    @torch.no_grad()
    def stuck(self) -> list[str]:
        """Names of the parameters every entry of which sits on a bound."""
        names = []
        for name, bounds in self.bounds().items():
            on_bound = [self.get_parameter(name) == bound for bound in bounds if bound is not None]
            if on_bound and bool(torch.stack(on_bound).any(dim=0).all()):
                names.append(name)
        return names

    def summary(self) -> dict[str, Tensor]:
        """The few numbers worth plotting, as scalars on the device."""
        return {name: parameter.detach().mean() for name, parameter in self.named_parameters()}

    def export(self) -> dict[str, Any]:
        """What was learned as plain lists and numbers, to be used without us."""
        return {name: parameter.detach().tolist() for name, parameter in self.named_parameters()}


class HyperparameterSet(Hyperparameter):
    """Hyper-parameters by name, applied one after the other; parameters are then called ``name.parameter``."""

    def __init__(self, members: dict[str, Hyperparameter]) -> None:
        super().__init__()
        if not members:
            raise InvalidValueError("`hyperparameters` must hold at least one Hyperparameter, got none.")
        for name, member in members.items():
            if not isinstance(member, Hyperparameter):
                raise InvalidTypeError(f"`hyperparameters` must be Hyperparameters, got {type(member).__name__}.")
            if not isinstance(name, str) or (not name.isidentifier() and not name.isdigit()):
                raise InvalidValueError(f"`hyperparameters` must have names without dots or spaces, got {name!r}.")
        self.members = nn.ModuleDict(members)
        counts = {member.num_classes for member in members.values()} - {None}
        if len(counts) > 1:
            raise InvalidValueError(f"`hyperparameters` must agree on num_classes, got {sorted(map(str, counts))}.")
        self.num_classes = counts.pop() if counts else None
        self.acts_on_meta_logits = any(member.acts_on_meta_logits for member in members.values())

    def _all(self) -> dict[str, Hyperparameter]:
        return {name: member for name, member in self.members.items() if isinstance(member, Hyperparameter)}

    def _joined(self, of: Callable[[Hyperparameter], dict[str, Any]], prefix: str = "") -> dict[str, Any]:
        """Values of all members, as ``name.key``."""
        members = self._all().items()
        return {f"{prefix}{name}.{key}": value for name, member in members for key, value in of(member).items()}

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Let each fill its slots."""
        for member in self._all().values():
            inner = member(inner)
        return inner

    def meta_logits(self, logits: Tensor) -> Tensor:
        """Each in turn."""
        for member in self._all().values():
            logits = member.meta_logits(logits)
        return logits

    def rates(self) -> dict[str, float]:
        """Each member's."""
        return self._joined(lambda member: member.rates(), "members.")

    def decays(self) -> dict[str, float]:
        """Each member's."""
        return self._joined(lambda member: member.decays(), "members.")

    def project_(self) -> None:
        """Each."""
        for member in self._all().values():
            member.project_()

    def stuck(self) -> list[str]:
        """Each member's, as ``name.parameter``."""
        return list(self._joined(lambda member: dict.fromkeys(member.stuck())))

    def summary(self) -> dict[str, Tensor]:
        """Each member's, as ``name.number``."""
        return self._joined(lambda member: member.summary())

    def export(self) -> dict[str, Any]:
        """By name."""
        return {name: member.export() for name, member in self._all().items()}


def as_one(hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter]) -> Hyperparameter:
    """One hyper-parameter as it is; a list or dictionary of several as a set, a list's members named 0, 1, ..."""
    if isinstance(hyperparameters, Hyperparameter):
        return hyperparameters
    if isinstance(hyperparameters, dict):
        return HyperparameterSet(hyperparameters)
    if isinstance(hyperparameters, (list, tuple)):
        return HyperparameterSet({str(number): member for number, member in enumerate(hyperparameters)})
    raise InvalidTypeError(
        f"`hyperparameters` must be a Hyperparameter, or a list or dict of them, got {type(hyperparameters).__name__}."
    )
