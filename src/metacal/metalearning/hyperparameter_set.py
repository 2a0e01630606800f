"""Several hyper-parameters learned at once, as one."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss


class HyperparameterSet(Hyperparameter):
    """Hyper-parameters applied one after the other.

    Args:
        members: by name; parameters are then called ``name.parameter``.
    """

    def __init__(self, members: dict[str, Hyperparameter]) -> None:
        super().__init__()
        if not members:
            raise InvalidValueError("`hyperparameters` must hold at least one Hyperparameter, got none.")
        for member in members.values():
            if not isinstance(member, Hyperparameter):
                raise InvalidTypeError(f"`hyperparameters` must be Hyperparameters, got {type(member).__name__}.")
        for name in members:
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
        return self._named(lambda member: member.rates())

    def decays(self) -> dict[str, float]:
        """Each member's."""
        return self._named(lambda member: member.decays())

    def _named(self, of: Callable[[Hyperparameter], dict[str, float]]) -> dict[str, float]:
        """Numbers of all members by the names that their parameters have here."""
        members = self._all().items()
        return {f"members.{name}.{key}": value for name, member in members for key, value in of(member).items()}

    def project_(self) -> None:
        """Each."""
        for member in self._all().values():
            member.project_()

    def stuck(self) -> list[str]:
        """Each member's, as ``name.parameter``."""
        return [f"{name}.{parameter}" for name, member in self._all().items() for parameter in member.stuck()]

    def summary(self) -> dict[str, Tensor]:
        """All numbers, as ``name.number``."""
        members = self._all().items()
        return {f"{name}.{key}": value for name, member in members for key, value in member.summary().items()}

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
