"""How the optimiser moves each parameter: the one place where optimisers and their states are read."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError, MetacalWarning
from metacal.functional.inputs import at_least_float32

PLAIN = (torch.optim.SGD, torch.optim.ASGD)
"""Optimisers that leave the gradient's direction alone."""


class OptimizerStep:
    """What an optimiser makes of a gradient: ``lr * scale * gradient``, elementwise.

    The scale is that of the optimiser's second moments: ``1 / (sqrt(v) + eps)`` for Adam and its kin, RMSprop and
    Adagrad, 1 for SGD. Momentum, which spreads a gradient over later steps, and weight decay, which does not depend on
    it, are left out. Optimisers that are not known are taken for plain ones, with one warning.

    Args:
        optimizer: one, or several that train parts of the model; wrapped by Fabric, Accelerate or Lightning too.
    """

    def __init__(self, optimizer: Any) -> None:
        given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self._given: Sequence[Any] = given
        self._has_warned = False
        for each in self.optimizers:
            if not isinstance(each, torch.optim.Optimizer):
                raise InvalidTypeError(
                    f"`optimizer` must be the torch.optim.Optimizer that trains the model, got {type(each).__name__}."
                )
        if not self.parameters():
            raise InvalidValueError("`optimizer` must train a parameter, got none that requires a gradient.")

    @property
    def optimizers(self) -> list[Any]:
        """Without wrappers, whose own copy of the state may be stale."""
        return [_unwrapped(each) for each in self._given]

    def parameters(self) -> list[nn.Parameter]:
        """What is trained now, in the optimiser's order."""
        return [parameter for _, _, parameter in self._entries()]

    @property
    def lr(self) -> float:
        """The largest learning rate of all groups: the unit that steps are measured in."""
        return max(float(group["lr"]) for optimizer in self.optimizers for group in optimizer.param_groups)

    @property
    def is_known(self) -> bool:
        """Whether the next step's scale is known: an adaptive optimiser shows it after its first step."""
        return all(
            not _is_adaptive(optimizer, group) or any(_has_stepped(optimizer.state.get(p)) for p in group["params"])
            for optimizer in self.optimizers
            for group in optimizer.param_groups
        )

    def scales(self, *, adaptive: bool = True) -> dict[nn.Parameter, float | Tensor]:
        """For each trained parameter, what its gradient is multiplied by, in units of `lr`.

        Args:
            adaptive: with the optimiser's second moments; False leaves the gradient's direction within a group alone.
        """
        unit = self.lr
        found: dict[nn.Parameter, float | Tensor] = {}
        for optimizer, group, parameter in self._entries():
            rate = float(group["lr"]) / unit if unit else 1.0
            scale = self._scale(optimizer, group, parameter) if adaptive else None
            found[parameter] = rate if scale is None else rate * scale
        return found

    def _scale(self, optimizer: Any, group: dict[str, Any], parameter: nn.Parameter) -> Tensor | None:
        state = optimizer.state.get(parameter, {})
        moment = _second_moment(group, state)
        if moment is not None and moment.shape == parameter.shape:
            scale: Tensor = 1.0 / (at_least_float32(moment).sqrt() + group.get("eps", 1e-8))
            return scale
        if not self._has_warned and not isinstance(optimizer, PLAIN) and (moment is not None or state):
            self._has_warned = True
            warnings.warn(
                f"The state of {type(optimizer).__name__} is not known: its step is taken for a plain one, in "
                "proportion to the gradient.",
                MetacalWarning,
                stacklevel=2,
            )
        return None

    def _entries(self) -> Iterator[tuple[Any, dict[str, Any], nn.Parameter]]:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.requires_grad:
                        yield optimizer, group, parameter


def _unwrapped(optimizer: Any) -> Any:
    """The optimiser inside a wrapper of Fabric's, Lightning's or Accelerate's."""
    inner = getattr(optimizer, "optimizer", None)
    inner = getattr(optimizer, "_optimizer", None) if inner is None else inner
    return _unwrapped(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def _is_adaptive(optimizer: Any, group: dict[str, Any]) -> bool:
    return not isinstance(optimizer, PLAIN) and "eps" in group


def _has_stepped(state: dict[str, Any] | None) -> bool:
    if not state:
        return False
    return "sum" not in state or float(state["step"]) > 0  # Adagrad's is there from the start


def _second_moment(group: dict[str, Any], state: dict[str, Any]) -> Tensor | None:
    """Mean square of recent gradients, as the optimiser keeps it; None if it keeps none that we know."""
    moment: Tensor | None = state.get("sum")
    if "exp_avg_sq" in state:
        moment = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
        moment = moment / (1.0 - group["betas"][1] ** state["step"]) if isinstance(moment, Tensor) else None
    elif "square_avg" in state and "acc_delta" not in state:
        moment = state["square_avg"]
        if group.get("centered") and moment is not None:
            moment = (moment - state["grad_avg"].square()).clamp(min=0.0)
    return moment
