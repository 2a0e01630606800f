"""The optimiser's step for each parameter: the only place that reads optimisers and their states."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError, MetacalWarning
from metacal.functional.inputs import at_least_float32

PLAIN = (torch.optim.SGD, torch.optim.ASGD)  # leave the gradient's direction alone
LONGEST = 32.0  # most that Adam makes of a gradient, however sudden: 1 / sqrt(1 - 0.999), in units of the learning rate


def scaled(scale: float | Tensor, gradient: Tensor) -> Tensor:
    """Scale a gradient as an optimiser does, per unit of the learning rate; adaptive ones are clipped.

    Where there were next to no gradients before (a rare token, the first steps), one over their root is huge. A step of
    the optimiser's, with the new gradient among its moments, is bounded.
    """
    if isinstance(scale, float):
        return gradient if scale == 1.0 else scale * gradient
    step = scale * gradient
    return torch.where(step.isfinite(), step.clamp(-LONGEST, LONGEST), step)


class OptimizerStep:
    """The step of an optimiser for a gradient: ``lr * scale * gradient``, elementwise.

    The scale is that of the optimiser's second moments: ``1 / (sqrt(v) + eps)`` for Adam and its kin, RMSprop and
    Adagrad, 1 for SGD. Momentum, which spreads a gradient over later steps, weight decay, which does not depend on it,
    and factors that all parameters share (RAdam's rectification) are left out. Optimisers that are not known are taken
    for plain ones, with one warning.

    Args:
        optimizer: one, or several that train parts of the model; wrapped by Fabric, Accelerate or Lightning too.
    """

    def __init__(self, optimizer: Any) -> None:
        self._given: Sequence[Any] = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        self._has_warned = False
        self.highest_lr = 0.0
        for each in self.optimizers:
            if not isinstance(each, torch.optim.Optimizer):
                raise InvalidTypeError(
                    f"`optimizer` must be the torch.optim.Optimizer that trains the model, got {type(each).__name__}."
                )
        if not self.parameters():
            raise InvalidValueError("`optimizer` must train a parameter, got none that requires a gradient.")

    @property
    def optimizers(self) -> list[Any]:
        """The optimisers without wrappers, whose own copy of the state may be stale."""
        return [_unwrapped(each) for each in self._given]

    def parameters(self) -> list[nn.Parameter]:
        """The currently trained parameters, in the optimiser's order."""
        return [parameter for _, _, parameter in self._entries()]

    def trains(self, module: nn.Module) -> bool:
        """Whether it trains a parameter of a module."""
        trained = {id(parameter) for parameter in self.parameters()}
        return any(id(parameter) in trained for parameter in module.parameters())

    @property
    def lr(self) -> float:
        """The largest learning rate of all groups: the unit of steps."""
        return max(_rate(group) for optimizer in self.optimizers for group in optimizer.param_groups)

    def note_rate(self) -> None:
        """Update the highest learning rate; call it once in each training step."""
        self.highest_lr = max(self.highest_lr, self.lr)

    @property
    def relative_lr(self) -> float:
        """The learning rate relative to its highest value so far; 1 at the start."""
        highest = max(self.highest_lr, self.lr)
        return self.lr / highest if highest > 0.0 else 1.0

    @property
    def is_known(self) -> bool:
        """Whether the scale of the next step is known: for adaptive optimisers, after the first step."""
        return all(not _is_adaptive(optimizer) or _has_stepped(optimizer) for optimizer in self.optimizers)

    def scales(self, *, adaptive: bool = True) -> dict[nn.Parameter, float | Tensor]:
        """Return the factor of each trained parameter's gradient, in units of `lr`.

        Without ``adaptive``, second moments are left out: the gradient's direction within a group is left alone.
        """
        unit, found = self.lr, {}
        stepped = {id(optimizer) for optimizer in self.optimizers if adaptive and _has_stepped(optimizer)}
        for optimizer, group, parameter in self._entries():
            scale = self._scale(optimizer, group, parameter) if id(optimizer) in stepped else 1.0
            found[parameter] = _rate(group) / unit * scale if unit else scale
        return found

    def _scale(self, optimizer: Any, group: dict[str, Any], parameter: nn.Parameter) -> float | Tensor:
        state = optimizer.state.get(parameter)
        if not state and _is_adaptive(optimizer):
            return 0.0  # has had no gradient so far: it does not move
        scale = _adaptive_scale(group, state) if state else None
        if scale is not None and scale.shape == parameter.shape:
            return scale
        if state and not isinstance(optimizer, PLAIN) and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"The state of {type(optimizer).__name__} is not known: its step is taken for a plain one, in "
                "proportion to the gradient.",
                MetacalWarning,
                stacklevel=2,
            )
        return 1.0

    def _entries(self) -> Iterator[tuple[Any, dict[str, Any], nn.Parameter]]:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                yield from ((optimizer, group, each) for each in group["params"] if each.requires_grad)


def _unwrapped(optimizer: Any) -> Any:
    """Return the optimiser inside a wrapper of Fabric, Lightning or Accelerate."""
    inner = getattr(optimizer, "optimizer", None)
    inner = getattr(optimizer, "_optimizer", None) if inner is None else inner
    return _unwrapped(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def _rate(group: dict[str, Any]) -> float:
    """Return the learning rate of a group; 1 if the optimiser finds its own."""
    rate = group.get("lr")
    return 1.0 if rate is None else float(rate)


def _is_adaptive(optimizer: Any) -> bool:
    return not isinstance(optimizer, PLAIN) and any("eps" in group for group in optimizer.param_groups)


def _has_stepped(optimizer: Any) -> bool:
    # Adagrad's state is there before the first step; the others' number of steps may be on a GPU, and is not read.
    return any(state and ("sum" not in state or float(state["step"]) > 0) for state in optimizer.state.values())


def _adaptive_scale(group: dict[str, Any], state: dict[str, Any]) -> Tensor | None:
    """Return the factor of a gradient apart from the learning rate; None if the state is unknown.

    A parameter whose gradients were all 0 (an unused embedding, a dead unit) does not move, whatever 1 / eps says.
    """
    eps, steps = group.get("eps", 1e-8), state.get("step", group.get("step"))
    if isinstance(steps, Tensor) and steps.device.type == "cpu":
        steps = steps.item()  # it is float32: 1 - beta ** steps would lose digits
    if "acc_delta" in state:
        scale: Tensor = (at_least_float32(state["acc_delta"]) + eps) / (at_least_float32(state["square_avg"]) + eps)
        return scale.sqrt()
    if "exp_avg_sq" in state and "betas" in group and steps is not None:
        moment = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
        root = (at_least_float32(moment) / (1.0 - group["betas"][1] ** steps)).sqrt()
    elif "square_avg" in state:
        mean = state["grad_avg"].square() if group.get("centered") else 0.0
        root = at_least_float32(state["square_avg"] - mean).clamp(min=0.0).sqrt()
    elif "exp_inf" in state:
        root = at_least_float32(state["exp_inf"])
    elif "sum" in state:
        root = at_least_float32(state["sum"]).sqrt()
    else:
        return None
    return torch.where(root > 0.0, 1.0 / (root + eps), 0.0)
