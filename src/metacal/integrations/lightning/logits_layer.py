"""Finding the layer of a LightningModule that returns the logits."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn

from metacal.errors import InvalidValueError
from metacal.metalearning.checks import find_head
from metacal.metalearning.labels import split_batch
from metacal.metalearning.model_output import find_output_layer, named_layers
from metacal.metalearning.quiet_forward import leaving_no_trace


def find_logits_layer(module: LightningModule, head: str | None, batch: Any) -> nn.Module:
    """The part of a module that returns the logits.

    Args:
        module: the user's.
        head: its attribute path; None runs ``forward``, or the module's one part with parameters where there is no
            ``forward``, and takes the innermost layer whose output is returned.
        batch: as a step is given it.
    """
    if head is not None:
        return find_head(module, head)
    part = called_part(module)
    if part is None:
        raise InvalidValueError(
            f"`head` must be the attribute path of the layer that returns the logits, got None, and the module has "
            f"no `forward` to find it by; {named_layers(module)}"
        )
    try:
        with leaving_no_trace(module, mode="train", seed=0, device=module.device), torch.no_grad():
            _, found = find_output_layer(part, split_batch(batch)[0], None)
    except Exception as error:
        raise InvalidValueError(
            f"`head` must be the attribute path of the layer that returns the logits, got None, and "
            f"{type(part).__name__} cannot be run on a batch's inputs to find it; {named_layers(module)}"
        ) from error
    return part if found is None else found


def called_part(module: LightningModule) -> nn.Module | None:
    """The module itself if it defines ``forward``, or its one part with parameters; None if there are several."""
    if type(module).forward is not LightningModule.forward:
        return module
    parts = [part for part in module.children() if next(part.parameters(), None) is not None]
    return parts[0] if len(parts) == 1 else None
