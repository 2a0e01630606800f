"""`Rows`: samples of a dense or sparse matrix as tensors; `RowBatches`: the same, a batch at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from metacal.seeding import generator


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

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The samples with these numbers."""
        return self.features(index), self.labels[index].to(self.device)

    def features(self, index: Tensor) -> Tensor:
        """Inputs alone."""
        taken = self.inputs[index.numpy()]
        dense = taken.toarray() if scipy.sparse.issparse(taken) else taken
        return torch.from_numpy(np.ascontiguousarray(dense)).to(self.device)

    def select(self, index: Tensor) -> "Rows":
        """A part of them."""
        return Rows(self.inputs[index.numpy()], self.labels[index], self.device)

    def joined(self, others: "Rows") -> "Rows":
        """These and others."""
        pair = [self.inputs, others.inputs]
        inputs = scipy.sparse.vstack(pair, format="csr") if scipy.sparse.issparse(self.inputs) else np.vstack(pair)
        return Rows(inputs, torch.cat((self.labels, others.labels)), self.device)


@dataclass(frozen=True)
class RowBatches:
    """Batches of rows; each pass, known by its number, has an order of its own.

    Attributes:
        rows: the samples.
        batch_size: samples in a batch.
        seed: of the orders.
    """

    rows: Rows
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass, from a batch on."""
        order = torch.randperm(len(self.rows), generator=generator(self.seed, number))
        for index in torch.split(order, self.batch_size)[start:]:
            yield self.rows.batch(index)
