"""A model's logits, and the layer that returns them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.batches import call_model, plain_model, unconverted
from metacal.metalearning.quiet_forward import eagerly


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returns: the tensor itself, or what it calls ``logits``."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = str(found.dtype) if isinstance(found, Tensor) else type(output).__name__
        raise InvalidTypeError(f"`model` must return logits, as a tensor or under that name, got {kind}.")
    return found


@torch.no_grad()
def find_output_layer(model: nn.Module, x: Any, head: nn.Module | None) -> tuple[Tensor, nn.Module | None]:
    """The logits, and the innermost module with parameters that returns them; None if there is none.

    Logits are what the ``head`` returns, if one is given, or else the model. The model is run once on ``x``; the caller
    sees to it that this leaves no trace.

    Raises:
        InvalidValueError: a head that is given is not called once.
    """
    calls: list[tuple[nn.Module, Any]] = []
    handles = [
        module.register_forward_hook(lambda called, _, output: calls.append((called, output)))
        for module in model.modules()
        if next(module.parameters(), None) is not None
    ]
    try:
        # Compiled for these hooks and few samples, it would have to be compiled again.
        with unconverted(model), eagerly():
            call_model(model, x)
    finally:
        for handle in handles:
            handle.remove()
    plain = plain_model(model)
    source = plain if head is None else head
    outputs = [output for module, output in calls if module is source]
    if head is not None and len(outputs) != 1:
        raise InvalidValueError(
            f"`head` must be called once in the model's forward pass, got {len(outputs)} calls; {named_layers(model)}"
        )
    logits = logits_of(outputs[-1])
    # Inner modules return before those around them; a whole model of several layers is not a layer.
    found = next((module for module, output in calls if output is logits), None)
    is_whole = found is plain and any(True for _ in plain.children())
    is_called_once = sum(module is found for module, _ in calls) == 1
    return logits, found if is_called_once and not is_whole else None


def named_layers(model: nn.Module, most: int = 5) -> str:
    """A sentence that names the model's last layers with parameters."""
    names = [
        f"{name or '(the model itself)'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    return f"its last layers are {', '.join(names[-most:])}." if names else "it has no layer with parameters."
