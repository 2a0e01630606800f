"""Logits of a whole set, on one process or shared out over many."""

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from metacal.functional.inputs import at_least_float32
from metacal.lab.data.batches import Batches
from metacal.lab.data.dataset import Examples


def share_of(examples: Examples, fabric: Fabric) -> Examples:
    """This process's share of the examples, a contiguous one; all of them if it is alone."""
    if fabric.world_size == 1:
        return examples
    return examples.select(torch.arange(len(examples)).tensor_split(fabric.world_size)[fabric.global_rank])


@torch.no_grad()
def predict(fabric: Fabric, model: nn.Module, share: Batches) -> tuple[Tensor, Tensor]:
    """Logits ``(n, K)`` in float32 or wider and targets ``(n,)`` of all examples, in their order, on every process.

    Args:
        fabric: what the model was set up by.
        model: left in the mode it was in.
        share: unshuffled batches of `share_of` the examples.
    """
    was_training = model.training
    model.eval()
    # Not through DDP, whose forward would join buffers over processes that may have different numbers of batches.
    module, dtype = getattr(model, "module", model), next(model.parameters()).dtype
    with fabric.autocast():
        parts = [module(x.to(dtype) if x.is_floating_point() else x) for x, _ in share]
    model.train(was_training)
    logits, targets = at_least_float32(torch.cat(parts)), share.examples.targets
    if fabric.world_size == 1:
        return logits, targets
    return gathered_rows(fabric, logits), gathered_rows(fabric, targets)


def gathered_rows(fabric: Fabric, values: Tensor) -> Tensor:
    """Rows of all processes after each other, in rank order; their numbers may differ."""
    sizes = fabric.all_gather(torch.tensor(len(values), device=fabric.device))
    assert isinstance(sizes, Tensor)
    padded = torch.zeros(int(sizes.max()), *values.shape[1:], dtype=values.dtype, device=fabric.device)
    padded[: len(values)] = values
    blocks = fabric.all_gather(padded)
    assert isinstance(blocks, Tensor)
    return torch.cat([block[: int(size)] for block, size in zip(blocks, sizes, strict=True)])
