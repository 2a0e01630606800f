"""Trains a linear model or MLP on rows of a dense or sparse matrix, plainly or meta-calibrated."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from metacal.seeding import generator, mixed

AT_ONCE = 8192
"""Rows whose logits are computed together."""
TRAIN, META = 1, 2
"""Set the orders of training and held-out batches apart."""


@dataclass(frozen=True)
class Rows:
    """Samples with their class numbers.

    Attributes:
        inputs: float32 ``(n, d)``, a NumPy array or a CSR matrix; a batch of the latter is made dense.
        labels: int64 ``(n,)``.
        device: where batches go.
    """

    inputs: Any
    labels: Tensor
    device: torch.device

    def __len__(self) -> int:
        return len(self.labels)

    def features(self, index: Tensor) -> Tensor:
        """Return the inputs of the samples with these numbers."""
        taken = self.inputs[index.numpy()]
        dense = taken.toarray() if scipy.sparse.issparse(taken) else taken
        return torch.from_numpy(np.ascontiguousarray(dense)).to(self.device)

    def select(self, index: Tensor) -> "Rows":
        """Return a subset of the rows."""
        return Rows(self.inputs[index.numpy()], self.labels[index], self.device)

    def joined(self, others: "Rows") -> "Rows":
        """Return these rows followed by others."""
        pair = [self.inputs, others.inputs]
        inputs = scipy.sparse.vstack(pair, format="csr") if scipy.sparse.issparse(self.inputs) else np.vstack(pair)
        return Rows(inputs, torch.cat((self.labels, others.labels)), self.device)


@dataclass(frozen=True)
class RowBatches:
    """Batches of rows, in a new order in each pass."""

    rows: Rows
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one pass, from a start on."""
        order = torch.randperm(len(self.rows), generator=generator(self.seed, number))
        for index in torch.split(order, self.batch_size)[start:]:
            yield self.rows.features(index), self.rows.labels[index].to(self.rows.device)


def draw_held_out(labels: NDArray[Any], share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw sorted sample numbers to fit on and to hold out, at least one each; stratified if possible."""
    samples, counts = len(labels), np.unique(labels, return_counts=True)[1]
    size = min(max(round(share * samples), 1), samples - 1)
    is_stratified = counts.min() > 1 and min(size, samples - size) >= len(counts)
    fitted, held_out = train_test_split(
        np.arange(samples), test_size=size, random_state=seed, stratify=labels if is_stratified else None
    )
    return np.sort(fitted), np.sort(held_out)


def split_rows(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split rows into training and held-out rows, at least one if some class has two samples.

    A class with one sample only is trained on.
    """
    spare = (torch.bincount(rows.labels)[rows.labels] > 1).nonzero().view(-1)
    if not len(spare):
        return rows, rows.select(spare)
    drawn = spare[torch.from_numpy(draw_held_out(rows.labels[spare].numpy(), share, seed)[1])]
    is_kept = torch.ones(len(rows), dtype=torch.bool)
    is_kept[drawn] = False
    return rows.select(is_kept.nonzero().view(-1)), rows.select(drawn)


def build_network(widths: list[int], seed: int, device: torch.device) -> nn.Sequential:
    """Build linear layers of these widths with ReLU between them; the seed determines the weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mixed(seed))
        layers: list[nn.Module] = []
        for given, wanted in pairwise(widths):
            layers += [nn.Linear(given, wanted), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(device)


def train(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    rows: Rows,
    *,
    batch_size: int,
    epochs: int,
    seed: int,
    decays: bool = True,
) -> float:
    """Train for some passes on a loss of features and class numbers; with ``decays``, by a cosine schedule to 0.

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
    """Compute logits ``(n, K)`` in float64 in host memory, so that a row does not depend on its batch."""
    wide = copy.deepcopy(network).double()
    indices = torch.split(torch.arange(len(rows)), AT_ONCE)
    return torch.cat([wide(rows.features(index).double()).cpu() for index in indices])
