"""Adam on the device, with a step size that adapts itself, and no step at all on a gradient that is not finite.

The step size of each parameter tensor grows while new gradients agree with the running mean of the old ones, and
shrinks while they do not: a start that is too small catches up, and noise does not carry omega away. Nothing here asks
the host for a decision.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.metalearning.settings import OuterSettings

RATE = 0.5
"""How fast the logarithm of a step size follows the agreement."""

NEUTRAL = 0.1
"""Cosine between a gradient and the mean of those before it at which a step size stays as it is."""

EPSILON = 1e-8
"""Adam's."""

SMALLEST, LARGEST = 1e-5, 1e-3
"""Bounds of an adapting step size, per training step."""


@dataclass
class AdamState:
    """Moments and counters; all tensors live with the parameters.

    Attributes:
        first: running means of gradients.
        second: running means of squared gradients.
        sizes: adapting step sizes, one for each parameter tensor, per training step; 0 before the first step.
        elapsed: training steps that the steps taken stand for, ``()``.
        taken: steps taken, ``()``.
        skipped: steps skipped for a non-finite gradient, ``()``.
    """

    first: list[Tensor]
    second: list[Tensor]
    sizes: list[Tensor]
    elapsed: Tensor
    taken: Tensor
    skipped: Tensor

    @classmethod
    def zeros(cls, parameters: tuple[Tensor, ...]) -> "AdamState":
        """State before the first step."""
        device = parameters[0].device
        return cls(
            [torch.zeros_like(p, requires_grad=False) for p in parameters],
            [torch.zeros_like(p, requires_grad=False) for p in parameters],
            [torch.zeros((), dtype=p.dtype, device=device) for p in parameters],
            *(torch.zeros((), dtype=torch.int64, device=device) for _ in range(3)),
        )

    def to(self, device: torch.device) -> "AdamState":
        """The same on another device."""
        return AdamState(
            [tensor.to(device) for tensor in self.first],
            [tensor.to(device) for tensor in self.second],
            [tensor.to(device) for tensor in self.sizes],
            self.elapsed.to(device),
            self.taken.to(device),
            self.skipped.to(device),
        )

    def state_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Copies of all tensors, and the names of the parameters in their order."""
        return {**copy.deepcopy(vars(self)), "names": list(names)}

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Take saved values into these tensors, by the names of the parameters; by position if none were saved."""
        saved_names = state.get("names", names)
        if sorted(saved_names) != sorted(names):
            raise InvalidValueError(
                f"`state` must be of the hyper-parameters {', '.join(names)}, got one of {', '.join(saved_names)}."
            )
        for field, own in vars(self).items():
            if field not in state:
                continue  # a state of an earlier version may say less
            if isinstance(own, list):
                saved = dict(zip(saved_names, state[field], strict=True))
                for name, tensor in zip(names, own, strict=True):
                    tensor.copy_(saved[name])
            else:
                own.copy_(state[field])


@torch.no_grad()
def adam_step_(
    parameters: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    state: AdamState,
    settings: OuterSettings,
    interval: float = 1,
) -> Tensor:
    """One step in place on parameters and state; nothing changes where any gradient is not finite.

    Args:
        parameters: omega.
        gradients: one for each parameter.
        state: changed in place.
        settings: step size and betas, per training step.
        interval: training steps that this step stands for: the size is multiplied by it, the betas raised to its power.

    Returns:
        bool scalar on the device: whether the step was taken.
    """
    # The square's sum: a gradient so large that its square overflows is as bad as an infinite one.
    finite = torch.isfinite(torch.stack([g.square().sum() for g in gradients])).all()
    state.elapsed += finite * int(interval)
    state.taken += finite
    state.skipped += ~finite
    beta_first, beta_second = (beta**interval for beta in settings.betas)
    elapsed = state.elapsed.to(gradients[0].dtype)
    first_weight, second_weight = (1.0 - beta**elapsed for beta in settings.betas)
    moments = zip(parameters, gradients, state.first, state.second, state.sizes, strict=True)
    for parameter, gradient, first, second, size in moments:
        safe = torch.where(finite, gradient, 0.0)
        size.copy_(torch.where(finite, _adapted(size, safe, first, settings), size))
        first.copy_(torch.where(finite, torch.lerp(safe, first, beta_first), first))
        second.copy_(torch.where(finite, torch.lerp(safe.square(), second, beta_second), second))
        change = (first / first_weight) / ((second / second_weight).sqrt() + EPSILON)
        parameter -= torch.where(finite, interval * size * change, 0.0).to(parameter.dtype)
    return finite


def _adapted(size: Tensor, gradient: Tensor, mean: Tensor, settings: OuterSettings) -> Tensor:
    """The next step size: the one given at first, then what the agreement of gradient and running mean makes of it."""
    if not settings.adaptive:
        return torch.full_like(size, settings.meta_lr)
    scale = gradient.norm() * mean.norm()
    agreement = torch.where(scale > 0.0, (gradient * mean).sum() / scale, NEUTRAL)
    start = torch.where(size > 0.0, size, settings.meta_lr)
    return (start * torch.exp(RATE * (agreement - NEUTRAL))).clamp(SMALLEST, LARGEST)
