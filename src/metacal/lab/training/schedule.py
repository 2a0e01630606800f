"""Optimisers by name, and the learning rate as a function of the epoch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from metacal.errors import InvalidValueError


@dataclass(frozen=True)
class Schedule:
    """The factor on the learning rate, epoch by epoch; it holds from the start of an epoch to its end.

    Attributes:
        kind: ``"multistep"``, ``"cosine"`` or ``"constant"``.
        epochs: in all, for the cosine.
        milestones: after so many epochs the rate is multiplied by ``decay``.
        decay: factor at a milestone.

    Examples:
        >>> schedule = Schedule("multistep", 350, (150, 250), 0.1)
        >>> [round(schedule.factor(epoch), 3) for epoch in (0, 149, 150, 250)]
        [1.0, 1.0, 0.1, 0.01]
    """

    kind: str
    epochs: int
    milestones: Sequence[int] = ()
    decay: float = 0.1

    def factor(self, epoch: int) -> float:
        """The factor in an epoch, numbered from 0."""
        if self.kind == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * epoch / self.epochs))
        if self.kind == "multistep":
            return float(self.decay ** sum(epoch >= milestone for milestone in self.milestones))
        return 1.0


def build_optimizer(
    kind: str,
    parameters: Iterable[nn.Parameter],
    *,
    lr: float,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Optimizer:
    """An optimiser over the parameters that are trained.

    Examples:
        >>> import torch
        >>> type(build_optimizer("adam", [torch.nn.Parameter(torch.zeros(1))], lr=1e-3)).__name__
        'Adam'
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise InvalidValueError("`model` must have a parameter that is trained, got none that requires a gradient.")
    if kind == "sgd":
        return torch.optim.SGD(trained, lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    if kind == "adam":
        return torch.optim.Adam(trained, lr=lr, weight_decay=weight_decay)
    if kind == "adamw":
        return torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay)
    raise InvalidValueError(f"`optimizer` must be one of 'sgd', 'adam', 'adamw', got {kind!r}.")
