"""`Loss`: the one type for training losses, regularisers and meta-objectives. Losses add and scale."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.boundary import explain_methods, public

__all__ = ["LOSSES", "FunctionLoss", "Loss", "WeightedSum"]

LOSSES: dict[str, type["Loss"]] = {}
"""The losses that specs can name. ``class MyLoss(Loss, name="mine")`` adds one."""


class Loss(nn.Module):
    """A map ``(logits, targets) -> Tensor`` that can be added to others and multiplied by numbers.

    Subclass it with a ``forward(logits, targets)``, or wrap any callable in `FunctionLoss`.

    Examples:
        >>> import torch
        >>> from metacal.losses import CrossEntropyLoss, DECELoss
        >>> objective = CrossEntropyLoss() + 0.5 * DECELoss()
        >>> objective
        CrossEntropyLoss(reduction='mean') + 0.5 * DECELoss(num_bins=15, tau_a=100.0, tau_b=0.01, gradient='full')
        >>> logits, targets = torch.tensor([[2.0, 0.0], [0.5, 0.0]]), torch.tensor([0, 1])
        >>> parts = CrossEntropyLoss()(logits, targets) + 0.5 * DECELoss()(logits, targets)
        >>> bool(objective(logits, targets) == parts)
        True
    """

    def __init_subclass__(cls, name: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        explain_methods(cls, "__init__")
        if name is not None:
            known = LOSSES.setdefault(name, cls)
            if known.__qualname__ != cls.__qualname__:
                raise InvalidValueError(f"`name` must be of one loss, got {name!r}, the name of {known.__qualname__}.")
            LOSSES[name] = cls  # defined again in a notebook

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch: logits ``(n, K)`` (or one per sample), integer targets ``(n,)``."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(logits, targets).")

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Take held-out predictions after an epoch, for a loss that depends on them, such as `AdaFocalLoss`."""

    def terms(self) -> Iterator[tuple[float, "Loss"]]:
        """The ``(weight, loss)`` pairs of which this loss is the sum."""
        yield 1.0, self

    def __add__(self, other: "Loss | int") -> "Loss":
        if isinstance(other, int) and other == 0:  # where the built-in sum() starts
            return self
        if not isinstance(other, Loss):
            raise InvalidTypeError(
                f"A Loss can be added to another Loss, got {type(other).__name__}; FunctionLoss wraps any callable."
            )
        return _sum_of([*self.terms(), *other.terms()])

    __radd__ = __add__

    def __mul__(self, weight: float) -> "Loss":
        if not isinstance(weight, (int, float)) or isinstance(weight, bool):
            raise InvalidTypeError(f"A Loss can be multiplied by a number, got {type(weight).__name__}.")
        return _sum_of([(weight * own, loss) for own, loss in self.terms()])

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> "Loss":
        return self * (1.0 / number)

    def __neg__(self) -> "Loss":
        return self * -1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class WeightedSum(Loss):
    """A weighted sum of losses, the result of ``+`` and ``*``.

    Args:
        terms: ``(weight, loss)`` pairs.
    """

    def __init__(self, terms: list[tuple[float, Loss]]) -> None:
        super().__init__()
        self.weights = [float(weight) for weight, _ in terms]
        self.losses = nn.ModuleList([loss for _, loss in terms])

    @public
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Sum of ``weight * loss(logits, targets)``."""
        values: list[Tensor] = [weight * loss(logits, targets) for weight, loss in self.terms()]
        return functools.reduce(torch.add, values)

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Pass the predictions to every term."""
        for _, loss in self.terms():
            loss.observe(logits, targets)

    def terms(self) -> Iterator[tuple[float, Loss]]:
        """The weighted terms."""
        for weight, loss in zip(self.weights, self.losses, strict=True):
            assert isinstance(loss, Loss)
            yield weight, loss

    def __repr__(self) -> str:
        return " + ".join(repr(loss) if weight == 1.0 else f"{weight:g} * {loss!r}" for weight, loss in self.terms())


def _sum_of(terms: list[tuple[float, Loss]]) -> Loss:
    """Return the sum of ``(weight, loss)`` pairs; one loss of weight 1 is returned itself, to keep its type."""
    (weight, loss), *others = terms
    return loss if weight == 1.0 and not others else WeightedSum(terms)


class ShellLoss(Loss):
    """A function of `metacal.functional` with its options as attributes, which the function checks on one sample."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.function(logits=torch.zeros(1, 2, device="cpu"), targets=torch.tensor([0], device="cpu"), **options)
        self._names = tuple(options)
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        return self.function(logits=logits, targets=targets, **{name: getattr(self, name) for name in self._names})

    def extra_repr(self) -> str:
        """The options."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)


class FunctionLoss(Loss):
    """Any callable ``(logits, targets) -> Tensor`` as a Loss: a `torch.nn` loss, or your own.

    Examples:
        >>> from torch import nn
        >>> from metacal.losses import DECELoss
        >>> FunctionLoss(nn.MultiMarginLoss()) + 0.1 * DECELoss()
        FunctionLoss(MultiMarginLoss()) + 0.1 * DECELoss(num_bins=15, tau_a=100.0, tau_b=0.01, gradient='full')
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        if not callable(function):
            raise InvalidTypeError(f"`function` must be callable as (logits, targets), got {type(function).__name__}.")
        self.function = function

    @public
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Call the function."""
        return self.function(logits, targets)

    def extra_repr(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", repr(self.function))
