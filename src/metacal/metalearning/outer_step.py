"""`OuterStep`: the update rule of omega. Adam on the device, with an adaptive step size.

The step size of each parameter tensor grows while new gradients agree with the running mean of the old ones, and
shrinks while they do not: a start that is too small catches up, and noise does not carry omega away. Nothing changes
where a gradient is not finite. Nothing here asks the host for a decision.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_integer, check_positive
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.model_calls import map_tensors

RATE = 0.5  # how fast the logarithm of a step size follows the agreement
NEUTRAL = 0.1  # cosine between a gradient and the mean of those before it at which a step size stays as it is
EPSILON = 1e-8  # Adam's
SMALLEST, LARGEST = 1e-5, 1e-3  # bounds of an adapting step size, per training step


@dataclass(frozen=True)
class OuterStep:
    """When and how hyper-parameters are updated; change fields with `dataclasses.replace`; `PAPER` is published.

    Attributes:
        every: iterations from one meta step to the next; `math.inf` takes none. Adam's step is multiplied by it and its
            betas raised to its power, so that its memory in training steps stays the same.
        dense_start: number of initial iterations with a meta step every ``dense_every``.
        dense_every: iterations between meta steps during ``dense_start``.
        lr: Adam's step size for the hyper-parameters, per training step; the initial one if it adapts.
        betas: Adam's betas, per training step.
        adaptive: let the step size grow and shrink with the agreement of successive gradients, within [1e-5, 1e-3], so
            that the result hardly depends on ``lr``.
        per_unit_step: use the gradient per unit of the learning rate, so that a schedule does not change its scale.
        scaled: simulate the optimiser's step; False simulates a plain gradient step.
        through: what the simulated step moves by default, ``"model"`` or ``"head"``.
        looks_ahead: evaluate the head after the simulated step, as the paper does; else before it, which is the limit
            of a short step and does not depend on the step's length.
        refine: evaluate the default objective after the best temperature for the held-out samples.
        memory: number of held-out samples per meta step: stored samples of earlier meta batches fill up the new one,
            for a less noisy objective at no cost; 0 uses the new batch alone.
        mode: mode of the model on the meta batch: ``"train"``, normalised by batch statistics, or ``"eval"``.
    """

    every: float = 48
    dense_start: int = 1000
    dense_every: int = 16
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    adaptive: bool = True
    per_unit_step: bool = True
    scaled: bool = True
    through: str = "model"
    looks_ahead: bool = False
    refine: bool = True
    memory: int = 512
    mode: str = "train"

    def __post_init__(self) -> None:
        rule = "`every` must be an integer >= 1 or math.inf, got"
        if isinstance(self.every, bool) or not isinstance(self.every, (int, float)):
            raise InvalidTypeError(f"{rule} {self.every!r}.")
        if not (self.every >= 1 and (self.every == math.inf or self.every == int(self.every))):
            raise InvalidValueError(f"{rule} {self.every}.")
        check_integer("dense_start", self.dense_start, 0)
        check_integer("dense_every", self.dense_every, 1)
        check_positive("lr", self.lr)
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise InvalidValueError(f"`betas` must be two numbers in [0, 1), got {self.betas}.")
        check_integer("memory", self.memory, 0)
        check_choice("through", self.through, ("head", "model"))
        check_choice("mode", self.mode, ("train", "eval"))

    def interval(self, iteration: int) -> float:
        """Iterations from this meta step to the next."""
        return min(self.dense_every, self.every) if iteration < self.dense_start else self.every

    def is_due(self, iteration: int) -> bool:
        """Whether an iteration takes a meta step."""
        interval = self.interval(iteration)
        return math.isfinite(interval) and iteration % int(interval) == 0


PAPER = OuterStep(
    every=1,
    dense_start=0,
    adaptive=False,
    per_unit_step=False,
    scaled=False,
    through="head",
    looks_ahead=True,
    refine=False,
    memory=0,
)
"""The published outer step: each iteration, a plain step on the head of the training's own length, no adaptation."""


@dataclass
class AdamState:
    """Moments and counters, on the device of the parameters."""

    first: list[Tensor]  # running means of gradients
    second: list[Tensor]  # of squared gradients
    sizes: list[Tensor]  # of steps that adapt, per training step; 0 before the first step
    elapsed: Tensor  # training steps that the steps taken stand for
    taken: Tensor
    skipped: Tensor  # for a gradient that is not finite

    @classmethod
    def zeros(cls, parameters: Sequence[nn.Parameter]) -> "AdamState":
        """Return the initial state."""
        first, second = ([torch.zeros_like(p, requires_grad=False) for p in parameters] for _ in range(2))
        sizes = [torch.zeros((), dtype=p.dtype, device=p.device) for p in parameters]
        counters = (torch.zeros((), dtype=torch.int64, device=parameters[0].device) for _ in range(3))
        return cls(first, second, sizes, *counters)

    def to(self, device: torch.device) -> "AdamState":
        """Return the state on another device."""
        return AdamState(**map_tensors(vars(self), lambda tensor: tensor.to(device)))

    def state_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return copies of all tensors, and the parameter names in order."""
        return {**copy.deepcopy(vars(self)), "names": list(names)}

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Copy saved values into these tensors, by parameter name; by position if no names were saved."""
        saved_names = state.get("names", names)
        if sorted(saved_names) != sorted(names):
            raise InvalidValueError(
                f"`state` must be of the hyper-parameters {', '.join(names)}, got one of {', '.join(saved_names)}."
            )
        for field in vars(self).keys() & state.keys():  # a state of an earlier version may say less
            own, saved = getattr(self, field), state[field]
            if isinstance(own, Tensor):
                own.copy_(saved)
            else:
                by_name = dict(zip(saved_names, saved, strict=True))
                for name, tensor in zip(names, own, strict=True):
                    tensor.copy_(by_name[name])


@torch.no_grad()
def adam_step_(
    hyperparameters: Hyperparameter,
    gradients: Sequence[Tensor],
    state: AdamState,
    outer: OuterStep,
    interval: float = 1,
) -> Tensor:
    """Take one step in place on omega and state; nothing changes if any gradient is not finite.

    Each parameter moves at its own rate, and decays. The step stands for ``interval`` training steps: the size is
    multiplied by it, the betas are raised to its power. Returns a bool scalar on the device: whether it was taken.
    """
    rates, decays = hyperparameters.rates(), hyperparameters.decays()
    # The square's sum: a gradient so large that its square overflows is as bad as an infinite one.
    finite = torch.isfinite(torch.stack([g.square().sum() for g in gradients])).all()
    state.elapsed += finite * int(interval)
    state.taken += finite
    state.skipped += ~finite
    beta_first, beta_second = (beta**interval for beta in outer.betas)
    elapsed = state.elapsed.to(gradients[0].dtype)
    first_weight, second_weight = (1.0 - beta**elapsed for beta in outer.betas)
    omega = hyperparameters.omega().items()
    moments = zip(omega, gradients, state.first, state.second, state.sizes, strict=True)
    for (name, parameter), gradient, first, second, size in moments:
        safe = torch.where(finite, gradient, 0.0)
        size.copy_(torch.where(finite, _adapted(size, safe, first, outer), size))
        first.copy_(torch.where(finite, torch.lerp(safe, first, beta_first), first))
        second.copy_(torch.where(finite, torch.lerp(safe.square(), second, beta_second), second))
        change = (first / first_weight) / ((second / second_weight).sqrt() + EPSILON)
        if name in decays:
            parameter.mul_(torch.where(finite, (1.0 - decays[name]) ** interval, 1.0).to(parameter.dtype))
        distance = interval * rates.get(name, 1.0)
        parameter.sub_(torch.where(finite, distance * size * change, 0.0).to(parameter.dtype))
    return finite


def _adapted(size: Tensor, gradient: Tensor, mean: Tensor, outer: OuterStep) -> Tensor:
    """Return the next step size, from the agreement of gradient and running mean."""
    if not outer.adaptive:
        return torch.full_like(size, outer.lr)
    scale = gradient.norm() * mean.norm()
    agreement = torch.where(scale > 0.0, (gradient * mean).sum() / scale, NEUTRAL)
    start = torch.where(size > 0.0, size, outer.lr)
    return (start * torch.exp(RATE * (agreement - NEUTRAL))).clamp(SMALLEST, LARGEST)
