"""`Hyperparameter`: what can be learned about the training itself. A new one is one class in one file."""

from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_integer
from metacal.metalearning.inner_loss import InnerLoss

HYPERPARAMETERS: "dict[str, type[Hyperparameter]]" = {}
"""The classes by the names that specs use; a class enters under its ``name``."""

MAX_STRENGTH = 0.5
"""Most that label smoothing may take from the true class."""


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

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
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
            parameter = self.get_parameter(name)
            on_bound = [parameter == bound for bound in bounds if bound is not None]
            if on_bound and bool(torch.stack(on_bound).any(dim=0).all()):
                names.append(name)
        return names

    def summary(self) -> dict[str, Tensor]:
        """The few numbers worth plotting, as scalars on the device."""
        return {name: parameter.detach().mean() for name, parameter in self.named_parameters()}

    def export(self) -> dict[str, Any]:
        """What was learned as plain lists and numbers, to be used without us."""
        return {name: parameter.detach().tolist() for name, parameter in self.named_parameters()}


class LabelSmoothingHyperparameter(Hyperparameter):
    """Base of the hyper-parameters that turn labels into soft labels; a subclass gives the rows.

    Args:
        num_classes: K.
    """

    num_classes: int

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        self.num_classes = num_classes

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``: the soft label of each class in ``labels``."""
        raise NotImplementedError(f"{type(self).__name__} must define soft_labels(labels).")

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill the targets; targets that are soft already are mixed accordingly."""
        if inner.targets.is_floating_point():
            classes = torch.arange(self.num_classes, device=inner.targets.device)
            with torch.autocast(inner.targets.device.type, enabled=False):
                return inner.with_targets(inner.targets @ self.soft_labels(classes))
        return inner.with_targets(self.soft_labels(inner.targets))

    def export(self) -> dict[str, Any]:
        """The parameters, and the soft label of every class: a row each."""
        classes = torch.arange(self.num_classes, device=next(self.parameters()).device)
        with torch.no_grad():
            return {**super().export(), "soft_labels": self.soft_labels(classes).tolist()}
