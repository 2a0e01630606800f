"""Training a linear model or MLP on rows of features, plainly or meta-calibrated."""

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional.cross_entropy import soft_cross_entropy
from metacal.integrations.sklearn.rows import Rows
from metacal.metalearning import (
    Hyperparameter,
    MetaCalibrator,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    VectorLabelSmoothing,
)
from metacal.seeding import mixed

SMOOTHINGS: dict[str, Callable[[int], Hyperparameter]] = {
    "non_uniform": NonUniformLabelSmoothing,
    "vector": VectorLabelSmoothing,
    "scalar": ScalarLabelSmoothing,
}
AT_ONCE = 8192
"""Rows whose logits are computed together."""
TRAIN, META = 1, 2
"""Set the orders of training and meta batches apart."""

BatchLoss = Callable[[Tensor, Tensor, float], Tensor]
"""Features, class numbers and the learning rate to a loss."""


def build_network(widths: list[int], seed: int, device: torch.device) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them; the weights are a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mixed(seed))
        layers: list[nn.Module] = []
        for given, wanted in pairwise(widths):
            layers += [nn.Linear(given, wanted), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(device)


def build_adamw(network: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay."""
    return torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=weight_decay)


def meta_loss(calibrator: MetaCalibrator, meta: Rows, batch_size: int, seed: int) -> BatchLoss:
    """The loss of a batch after a meta step, if one is due."""
    batches: Iterator[Any] = meta.passes(batch_size, mixed(seed, META))
    return lambda x, y, lr: calibrator.step(x, y, meta=batches, lr=lr)


def soft_label_loss(network: nn.Module, soft_labels: Tensor | None) -> BatchLoss:
    """Cross-entropy with a given soft label for each class (a row each); None is plain cross-entropy."""
    if soft_labels is None:
        return lambda x, y, lr: nn.functional.cross_entropy(network(x), y)
    rows = soft_labels
    return lambda x, y, lr: soft_cross_entropy(logits=network(x), targets=rows[y])


def train(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: BatchLoss,
    rows: Rows,
    *,
    batch_size: int,
    epochs: int,
    seed: int,
    decays: bool = True,
) -> float:
    """Train for some passes over the rows; the learning rate goes down to 0 along a cosine if it ``decays``.

    Returns:
        Mean loss of the last pass.
    """
    steps_a_pass = -(-len(rows) // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps_a_pass) if decays else None
    network.train()
    total = torch.zeros((), device=rows.device)
    for step, (x, y) in enumerate(rows.passes(batch_size, mixed(seed, TRAIN), epochs)):
        loss = loss_of(x, y, optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if step >= (epochs - 1) * steps_a_pass:
            total += loss.detach() * len(y)
    network.eval()
    return float(total) / len(rows)


@torch.no_grad()
def compute_logits(network: nn.Module, rows: Rows) -> Tensor:
    """``(n, K)`` float64 in host memory; computed in float64, so that a row's do not depend on its batch."""
    wide = copy.deepcopy(network).double()
    indices = torch.split(torch.arange(len(rows)), AT_ONCE)
    parts = [wide(rows.features(index).double()).cpu() for index in indices]
    return torch.cat(parts)
