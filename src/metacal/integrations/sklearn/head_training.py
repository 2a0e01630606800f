"""Training a linear model or MLP on rows of features, plainly or meta-calibrated."""

import copy
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from metacal.integrations.sklearn.rows import RowBatches, Rows
from metacal.metalearning import (
    HierarchicalLabelSmoothing,
    LabelSmoothingHyperparameter,
    NonUniformLabelSmoothing,
    ScalarLabelSmoothing,
    VectorLabelSmoothing,
)
from metacal.seeding import mixed

SMOOTHINGS: dict[str, Callable[[int], LabelSmoothingHyperparameter]] = {
    "hierarchical": HierarchicalLabelSmoothing,
    "non_uniform": NonUniformLabelSmoothing,
    "vector": VectorLabelSmoothing,
    "scalar": ScalarLabelSmoothing,
}
AT_ONCE = 8192
"""Rows whose logits are computed together."""
TRAIN, META = 1, 2
"""Set the orders of training and held-out batches apart."""

BatchLoss = Callable[[Tensor, Tensor], Tensor]
"""Features and class numbers to a loss."""


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


def plain_loss(network: nn.Module) -> BatchLoss:
    """Cross-entropy, with nothing learned."""
    return lambda x, y: nn.functional.cross_entropy(network(x), y)


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
    batches = RowBatches(rows, batch_size, mixed(seed, TRAIN))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(batches)) if decays else None
    network.train()
    for epoch in range(epochs):
        total = torch.zeros((), device=rows.device)
        for x, y in batches.epoch(epoch):
            loss = loss_of(x, y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if schedule is not None:
                schedule.step()
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
