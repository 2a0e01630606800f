"""The training loss with the hyper-parameters as they are."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metacal.losses import Loss
from metacal.metalearning.checks import class_count
from metacal.metalearning.gather import world_size
from metacal.metalearning.hyperparameter import Hyperparameter
from metacal.metalearning.inner_loss import InnerLoss


def filled_inner_loss(hyperparameters: Hyperparameter, labels: Tensor, logits: Tensor) -> InnerLoss:
    """The loss of a training batch, its slots filled with omega, which no gradient reaches."""
    omega = {name: value.detach() for name, value in hyperparameters.named_parameters()}
    start = InnerLoss.plain(labels, class_count(logits))
    with torch.autocast(logits.device.type, enabled=False):
        inner: InnerLoss = functional_call(hyperparameters, omega, (start,))
    return inner


def training_loss(
    inner: InnerLoss, base: Loss, head: nn.Module, logits: Tensor, reduction: str, *, boundary: bool = True
) -> Tensor:
    """The mean or the sum over the batch, with history.

    DDP averages gradients over processes: a sum is multiplied by their number, so that the joint gradient is that of
    the joint sum. A penalty is there once a step: each process adds its share, at the boundary alone.
    """
    processes = world_size()
    share = 1.0 / processes if boundary else 0.0
    with torch.autocast(logits.device.type, enabled=False):
        if share != 1.0:
            inner = inner.with_penalty_scaled(share)
        total = inner.value(base, logits, dict(head.named_parameters()))
    return total / len(inner.labels) if reduction == "mean" else total * processes
