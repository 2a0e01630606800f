"""A reservoir: a random sample of rows that are seen once, for figures that need rows and not just sums."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SAMPLE = 100_000
SAMPLE_ELEMENTS = 2**26
"""Scores that a sample of rows may hold: fewer rows are kept of very many classes."""

BLOCK = 4096
"""Rows to come that are drawn at once."""


class Reservoir:
    """Keeps at most ``capacity`` rows, each as likely as any other, in the order they came; all of them if they fit.

    Every row has a random number, and those with the lowest stay. Once there are enough, a row matters only if its
    number is below a bar that sinks: how many rows come before the next such one is drawn, not a number for each. The
    same seed and rows give the same sample, however the rows are batched.

    Args:
        capacity: rows to keep.
        seed: of the draws.

    Examples:
        >>> import torch
        >>> reservoir = Reservoir(2, seed=0)
        >>> for first in (0, 3):
        ...     reservoir.add(torch.arange(first, first + 3.0).unsqueeze(1), torch.arange(first, first + 3))
        >>> reservoir.seen, len(reservoir.rows()[1])
        (6, 2)
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.seen = 0
        self._generator = np.random.default_rng(seed)
        self._by_class: list[Tensor] = []  # (K, m): scores of the rows held
        self._targets: list[Tensor] = []
        self._rows: list[NDArray[np.int64]] = []
        self._numbers: list[NDArray[np.float64]] = []
        self._held = 0
        self._bar = 1.0
        self._coming: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # rows below the bar that are still to be seen
        self._coming_numbers: NDArray[np.float64] = np.empty(0)
        self._drawn = 0  # rows that have been decided on

    @classmethod
    def for_classes(cls, num_classes: int, sample: int = SAMPLE, seed: int = 0) -> "Reservoir":
        """One that keeps ``sample`` rows, or as many of so many classes as fit in memory."""
        return cls(max(1, min(sample, SAMPLE_ELEMENTS // num_classes)), seed)

    @property
    def row_numbers(self) -> Tensor:
        """int64 ``(m,)``: which of the rows seen, counted from 0, are those of `rows`."""
        self._shrink()
        return torch.from_numpy(self._rows[0])

    @property
    def is_complete(self) -> bool:
        """Whether every row that was seen is still there."""
        return self.seen <= self.capacity

    def add(self, scores: Tensor, targets: Tensor) -> None:
        """Offer a batch of rows."""
        first = self.seen
        self.seen += len(targets)
        while True:
            if not len(self._coming):
                self._draw()
            # The bar sinks at a row that the draws alone decide, not at the end of a batch.
            wanted = min(int(np.searchsorted(self._coming, self.seen)), 2 * self.capacity - self._held)
            if not wanted:
                return
            chosen = torch.from_numpy(self._coming[:wanted] - first)
            self._by_class.append(scores.t().index_select(1, chosen))  # columns mostly lie together in memory
            self._targets.append(targets[chosen])
            self._rows.append(self._coming[:wanted])
            self._numbers.append(self._coming_numbers[:wanted])
            self._coming, self._coming_numbers = self._coming[wanted:], self._coming_numbers[wanted:]
            self._held += wanted
            if self._held == 2 * self.capacity:
                self._shrink()

    def rows(self) -> tuple[Tensor, Tensor]:
        """Scores ``(m, K)`` and targets ``(m,)`` of the rows kept."""
        self._shrink()
        return self._by_class[0].t().contiguous(), self._targets[0]

    def _draw(self) -> None:
        """Decide on the next rows: which of them are below the bar, and their numbers."""
        gaps = self._generator.geometric(self._bar, BLOCK) if self._bar < 1.0 else np.ones(BLOCK, dtype=np.int64)
        self._coming = self._drawn + np.cumsum(gaps) - 1
        self._coming_numbers = self._bar * self._generator.random(BLOCK)
        self._drawn = int(self._coming[-1]) + 1

    def _shrink(self) -> None:
        by_class, targets = torch.cat(self._by_class, dim=1), torch.cat(self._targets)
        rows, numbers = np.concatenate(self._rows), np.concatenate(self._numbers)
        if len(numbers) > self.capacity:
            self._bar = float(np.partition(numbers, self.capacity)[self.capacity])
            chosen = torch.from_numpy(np.flatnonzero(numbers < self._bar))
            by_class, targets = by_class.index_select(1, chosen), targets[chosen]
            rows, numbers = rows[chosen.numpy()], numbers[chosen.numpy()]
            is_below = self._coming_numbers < self._bar
            self._coming, self._coming_numbers = self._coming[is_below], self._coming_numbers[is_below]
        self._by_class, self._targets, self._rows, self._numbers = [by_class], [targets], [rows], [numbers]
        self._held = len(numbers)
