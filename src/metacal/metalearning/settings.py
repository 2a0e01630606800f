"""How omega is updated: the settings of the outer step, and named presets of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_choice, check_integer, check_positive


def check_every(every: float) -> None:
    """Raise unless ``every`` is a whole number >= 1 or infinity."""
    if isinstance(every, bool) or not isinstance(every, (int, float)):
        raise InvalidTypeError(f"`every` must be an integer >= 1 or math.inf, got {every!r}.")
    if not every >= 1 or (math.isfinite(every) and every != int(every)):
        raise InvalidValueError(f"`every` must be an integer >= 1 or math.inf, got {every}.")


@dataclass(frozen=True)
class OuterSettings:
    """Settings of the outer step.

    Attributes:
        inner_reduction: ``"mean"`` or ``"sum"`` of the training loss.
        every: iterations from one meta step to the next; `math.inf` is never.
        dense_start: so many iterations at first take a meta step each, whatever ``every`` says.
        meta_lr: Adam's step size per training step; the first one, if it adapts.
        betas: Adam's betas per training step.
        per_unit_step: divide the gradient that comes through the inner step by the inner learning rate, so that a
            schedule does not change its scale: what is seen late, at a small rate, counts as much as what was before.
            It can overshoot in long runs at a small rate, and is not for what acts through the step and directly too.
        adaptive: let the step size grow while gradients agree and shrink while they do not (see `adam_step_`).
        estimator: the hypergradient's, by name or as a function.
        dece_gradient: which of DECE's gradients the objective has, unless it is given.
        memory: samples that meta batches are filled up to with those before; 0 is none.
    """

    inner_reduction: str = "mean"
    every: float = 16
    dense_start: int = 1000
    meta_lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    per_unit_step: bool = False
    adaptive: bool = True
    estimator: str | Callable[..., Any] = "one_step"
    dece_gradient: str = "full"
    memory: int = 0

    def __post_init__(self) -> None:
        check_choice("inner_reduction", self.inner_reduction, ("mean", "sum"))
        check_every(self.every)
        check_positive("meta_lr", self.meta_lr)
        check_integer("memory", self.memory, 0)

    def interval(self, iteration: int) -> float:
        """Iterations from the meta step of this iteration to the next."""
        return 1 if iteration < self.dense_start else self.every


PRESETS = {
    None: OuterSettings(),
    "paper": OuterSettings(
        inner_reduction="sum", every=1, dense_start=0, meta_lr=1e-3, per_unit_step=False, adaptive=False
    ),
    "steady": OuterSettings(per_unit_step=True, estimator="small_step", dece_gradient="confidence", memory=512),
}


def outer_settings(preset: str | None, **given: Any) -> OuterSettings:
    """A preset with what was given by hand in place; None stands for not given."""
    if preset not in PRESETS:
        named = ", ".join(repr(name) for name in PRESETS if name)
        raise InvalidValueError(f"`preset` must be None or one of {named}, got {preset!r}.")
    chosen = {name: value for name, value in given.items() if value is not None}
    if "every" in chosen:
        chosen["dense_start"] = 0
    return replace(PRESETS[preset], **chosen)
