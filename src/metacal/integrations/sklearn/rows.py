"""`Rows`: samples of a dense or sparse matrix as tensors, a batch at a time."""

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

    def passes(self, batch_size: int, seed: int, epochs: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of ``epochs`` passes (without end if None), each pass in an order of its own."""
        epoch = 0
        while epochs is None or epoch < epochs:
            order = torch.randperm(len(self), generator=generator(seed, epoch))
            for index in torch.split(order, batch_size):
                yield self.batch(index)
            epoch += 1
