"""`OuterStep`: how omega is updated. Adam on the device, with a step size that adapts itself.

The step size of each parameter tensor grows while new gradients agree with the running mean of the old ones, and
shrinks while they do not: a start that is too small catches up, and noise does not carry omega away. Nothing changes
where a gradient is not finite. Nothing here asks the host for a decision.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
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
    """When and how the hyper-parameters move; variants by `dataclasses.replace`, the published one is `PAPER`.

    Attributes:
        every: iterations from one meta step to the next; `math.inf` takes none. Adam's step is multiplied by it and its
            betas raised to its power, so that its memory in training steps stays the same.
        dense_start: so many iterations at first take a meta step each ``dense_every``.
        dense_every: see there.
        lr: Adam's step size for the hyper-parameters, per training step; where it starts, if it adapts.
        betas: Adam's, per training step.
        adaptive: let the step size grow and shrink with the agreement of successive gradients, within [1e-5, 1e-3]: the
            result then hardly depends on ``lr``.
        per_unit_step: gradient per unit of the learning rate, so that a schedule leaves its scale alone.
        scaled: simulate the step that the optimiser takes; False is a plain one in proportion to the gradient.
        estimator: of the step on the head: ``"one_step"``, ``"small_step"``, ``"implicit"``, ``"evograd"``, or a
            function of a `MetaProblem`.
        refine: judge the default objective after the temperature that is best for the held-out samples.
        memory: judge so many held-out samples at a time: those of earlier meta batches, as they were then, fill the new
            one up. A less noisy objective at no cost; 0 judges the new batch alone.
        mode: of the model on the meta batch, ``"train"``: normalised by the batch's own statistics; or ``"eval"``.
    """

    every: float = 48
    dense_start: int = 1000
    dense_every: int = 16
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    adaptive: bool = True
    per_unit_step: bool = True
    scaled: bool = True
    estimator: str | Callable[..., Any] = "small_step"
    refine: bool = True
    memory: int = 512
    mode: str = "train"

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, (int, float)):
            raise InvalidTypeError(f"`every` must be an integer >= 1 or math.inf, got {self.every!r}.")
        if not self.every >= 1 or (math.isfinite(self.every) and self.every != int(self.every)):
            raise InvalidValueError(f"`every` must be an integer >= 1 or math.inf, got {self.every}.")
        check_integer("dense_start", self.dense_start, 0)
        check_integer("dense_every", self.dense_every, 1)
        check_positive("lr", self.lr)
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise InvalidValueError(f"`betas` must be two numbers in [0, 1), got {self.betas}.")
        check_integer("memory", self.memory, 0)
        check_choice("mode", self.mode, ("train", "eval"))

    def interval(self, iteration: int) -> float:
        """Iterations from the meta step of this iteration to the next."""
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
    estimator="one_step",
    refine=False,
    memory=0,
)
"""The published outer step: each iteration, a plain step on the head of the training's own length, no adaptation."""


@dataclass
class AdamState:
    """Moments and counters; all tensors live with the parameters."""

    first: list[Tensor]  # running means of gradients
    second: list[Tensor]  # of squared gradients
    sizes: list[Tensor]  # of steps that adapt, per training step; 0 before the first step
    elapsed: Tensor  # training steps that the steps taken stand for
    taken: Tensor
    skipped: Tensor  # for a gradient that is not finite

    @classmethod
    def zeros(cls, parameters: Sequence[nn.Parameter]) -> "AdamState":
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
        return AdamState(**map_tensors(vars(self), lambda tensor: tensor.to(device)))

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
    hyperparameters: Hyperparameter,
    gradients: Sequence[Tensor],
    state: AdamState,
    outer: OuterStep,
    interval: float = 1,
) -> Tensor:
    """One step in place on omega and state; nothing changes where any gradient is not finite.

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
    """The next step size: the one given at first, then what the agreement of gradient and running mean makes of it."""
    if not outer.adaptive:
        return torch.full_like(size, outer.lr)
    scale = gradient.norm() * mean.norm()
    agreement = torch.where(scale > 0.0, (gradient * mean).sum() / scale, NEUTRAL)
    start = torch.where(size > 0.0, size, outer.lr)
    return (start * torch.exp(RATE * (agreement - NEUTRAL))).clamp(SMALLEST, LARGEST)
