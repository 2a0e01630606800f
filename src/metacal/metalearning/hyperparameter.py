"""`Hyperparameter`: a learnable part of the training loss; `InnerLoss`: the training loss, whose slots it fills.

A hyper-parameter does not know the others and the trainer knows none of them: each takes an `InnerLoss` and returns one
with a slot changed. Slots compose: soft labels of soft labels, transform after transform, weight times weight,
penalty plus penalty.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import add, mul
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.inputs import as_rows, class_logits
from metacal.losses import Loss

HYPERPARAMETERS: "dict[str, type[Hyperparameter]]" = {}
"""The classes by the names that specs use; a class enters under its ``name``."""

Bounds = dict[str, tuple[float | None, float | None]]
"""Lowest and highest feasible value by parameter; None is no bound."""


@dataclass(frozen=True)
class Phase:
    """The state of training that hyper-parameters can depend on.

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
        """Return the loss of hard labels, with no slot filled."""
        return cls(labels, num_classes, targets=labels, phase=phase)

    def with_targets(self, targets: Tensor) -> "InnerLoss":
        """Return a copy with other targets."""
        return replace(self, targets=targets)

    def with_transform(self, transform: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """Return a copy with one more transform of the logits, applied after the others."""
        before = self.logits_transform
        return replace(self, logits_transform=(lambda z: transform(before(z))) if before else transform)

    def with_weight(self, weight: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """Return a copy with the sample weights multiplied."""
        return replace(self, sample_weight=_joined(self.sample_weight, weight, mul))

    def with_logit_penalty(self, penalty: Callable[[Tensor], Tensor]) -> "InnerLoss":
        """Return a copy with one more penalty on the logits."""
        return replace(self, logit_penalty=_joined(self.logit_penalty, penalty, add))

    def with_penalty(self, penalty: Callable[[Mapping[str, Tensor]], Tensor]) -> "InnerLoss":
        """Return a copy with one more penalty on the head's parameters."""
        return replace(self, penalty=_joined(self.penalty, penalty, add))

    def with_penalty_scaled(self, factor: float) -> "InnerLoss":
        """Return a copy with the penalty multiplied."""
        penalty = self.penalty
        return self if penalty is None else replace(self, penalty=lambda parameters: factor * penalty(parameters))

    @property
    def is_soft_label_loss(self) -> bool:
        """Whether only the targets (and a penalty) differ from a plain loss, so that the closed form holds."""
        return self.logits_transform is None and self.sample_weight is None and self.logit_penalty is None

    def value(self, base: Loss, logits: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the summed loss ``sum_i (w_i base(z_i, t_i) + a_i) + penalty``, with a the penalty on logits.

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


def _joined(before: Callable[[Any], Tensor] | None, after: Callable[[Any], Tensor], join: Any) -> Any:
    return after if before is None else lambda given: join(before(given), after(given))


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
        """Build one for a model with this last layer and this number of classes."""
        return cls(num_classes)

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Return the training loss with slots filled."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(inner).")

    def meta_logits(self, logits: Tensor) -> Tensor:
        """Return the logits that the meta-objective sees; usually unchanged."""
        return logits

    def omega(self) -> dict[str, nn.Parameter]:
        """Return the learned parameters (those that require a gradient) by name."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def bounds(self) -> Bounds:
        """Return the lowest and highest feasible value of each parameter; None is no bound."""
        return {}

    def rates(self) -> dict[str, float]:
        """Return the learning rate of parameters relative to the outer step's; 1 for those not named."""
        return {}

    def decays(self) -> dict[str, float]:
        """Return the share of a parameter that decays towards 0 in each training step; 0 for those not named."""
        return {}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip every parameter to its bounds."""
        for name, (low, high) in self.bounds().items():
            self.get_parameter(name).clamp_(min=low, max=high)

    @torch.no_grad()
    def stuck(self) -> list[str]:
        """Return the names of parameters with all entries on a bound."""
        names = []
        for name, bounds in self.bounds().items():
            on_bound = [self.get_parameter(name) == bound for bound in bounds if bound is not None]
            if on_bound and bool(torch.stack(on_bound).any(dim=0).all()):
                names.append(name)
        return names

    def summary(self) -> dict[str, Tensor]:
        """Return the few numbers worth plotting, as scalars on the device."""
        return {name: parameter.detach().mean() for name, parameter in self.named_parameters()}

    def export(self) -> dict[str, Any]:
        """Return the learned values as plain lists and numbers."""
        return {name: parameter.detach().tolist() for name, parameter in self.named_parameters()}


class HyperparameterSet(Hyperparameter):
    """Named hyper-parameters, applied in order; parameters are called ``members.name.parameter``."""

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

    def _of_each(self, method: str, prefix: str = "") -> dict[str, Any]:
        """Collect the results of a method of every member as ``name.key``."""
        found = {name: getattr(member, method)() for name, member in self.members.items()}
        return {f"{prefix}{name}.{key}": value for name, values in found.items() for key, value in values.items()}

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Let every member fill its slots."""
        for member in self.members.values():
            inner = member(inner)
        return inner

    def meta_logits(self, logits: Tensor) -> Tensor:
        """Apply every member in order."""
        for member in self.members.values():
            logits = member.meta_logits(logits)  # type: ignore[operator]
        return logits

    def bounds(self) -> Bounds:
        """Return the bounds of all members."""
        return self._of_each("bounds", "members.")

    def rates(self) -> dict[str, float]:
        """Return the rates of all members."""
        return self._of_each("rates", "members.")

    def decays(self) -> dict[str, float]:
        """Return the decays of all members."""
        return self._of_each("decays", "members.")

    def project_(self) -> None:
        """Clip the parameters of all members."""
        for member in self.members.values():
            member.project_()  # type: ignore[operator]

    def stuck(self) -> list[str]:
        """Return the stuck parameters of all members, as ``name.parameter``."""
        return [name.removeprefix("members.") for name in super().stuck()]

    def summary(self) -> dict[str, Tensor]:
        """Return the summaries of all members, as ``name.number``."""
        return self._of_each("summary")

    def export(self) -> dict[str, Any]:
        """Return the exports of all members by name."""
        return {name: member.export() for name, member in self.members.items()}  # type: ignore[operator]


def as_one(hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter]) -> Hyperparameter:
    """Return one hyper-parameter unchanged, several as a set; members of a list are named 0, 1, ..."""
    if isinstance(hyperparameters, Hyperparameter):
        return hyperparameters
    if isinstance(hyperparameters, (list, tuple)):
        hyperparameters = {str(number): member for number, member in enumerate(hyperparameters)}
    if isinstance(hyperparameters, dict):
        return HyperparameterSet(hyperparameters)
    raise InvalidTypeError(
        f"`hyperparameters` must be a Hyperparameter, or a list or dict of them, got {type(hyperparameters).__name__}."
    )
