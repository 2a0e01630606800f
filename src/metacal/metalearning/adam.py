"""Adam on the device: a step with a non-finite gradient is skipped and counted without the host being asked."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class AdamState:
    """Moments and counters; all tensors live with the parameters.

    Attributes:
        first: running means of gradients.
        second: running means of squared gradients.
        taken: steps taken, ``()``.
        skipped: steps skipped for a non-finite gradient, ``()``.
    """

    first: list[Tensor] = field(default_factory=list)
    second: list[Tensor] = field(default_factory=list)
    taken: Tensor = field(default_factory=lambda: torch.zeros(()))
    skipped: Tensor = field(default_factory=lambda: torch.zeros(()))

    @classmethod
    def zeros(cls, parameters: tuple[Tensor, ...]) -> "AdamState":
        """State before the first step."""
        device = parameters[0].device
        return cls(
            [torch.zeros_like(p, requires_grad=False) for p in parameters],
            [torch.zeros_like(p, requires_grad=False) for p in parameters],
            torch.zeros((), dtype=torch.float64, device=device),
            torch.zeros((), dtype=torch.float64, device=device),
        )

    def to(self, device: torch.device) -> "AdamState":
        """The same on another device."""
        return AdamState(
            [tensor.to(device) for tensor in self.first],
            [tensor.to(device) for tensor in self.second],
            self.taken.to(device),
            self.skipped.to(device),
        )


@torch.no_grad()
def adam_step_(
    parameters: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    state: AdamState,
    lr: float,
    betas: tuple[float, float],
    epsilon: float = 1e-8,
) -> Tensor:
    """One step in place on parameters and state; nothing changes where any gradient is not finite.

    Returns:
        bool scalar on the device: whether the step was taken.
    """
    finite = torch.stack([torch.isfinite(g).all() for g in gradients]).all()
    state.taken += finite
    state.skipped += ~finite
    first_weight = 1.0 - betas[0] ** state.taken
    second_weight = 1.0 - betas[1] ** state.taken
    for parameter, gradient, first, second in zip(parameters, gradients, state.first, state.second, strict=True):
        safe = torch.where(finite, gradient, 0.0)
        first.copy_(torch.where(finite, torch.lerp(safe, first, betas[0]), first))
        second.copy_(torch.where(finite, torch.lerp(safe.square(), second, betas[1]), second))
        change = lr * (first / first_weight) / ((second / second_weight).sqrt() + epsilon)
        parameter -= torch.where(finite, change, 0.0).to(parameter.dtype)
    return finite
