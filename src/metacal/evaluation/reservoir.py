"""A reservoir: a random sample of rows that are seen once, for figures that need rows and not just sums."""

import numpy as np
import torch
from torch import Tensor


class Reservoir:
    """Keeps at most ``capacity`` rows, each as likely as any other, in the order they came; all of them if they fit.

    Every row draws a number and those with the lowest stay: the same seed and rows give the same sample, however the
    rows are batched.

    Args:
        capacity: rows to keep.
        seed: of the draws.

    Examples:
        >>> import torch
        >>> reservoir = Reservoir(2, seed=0)
        >>> for first in (0, 3):
        ...     reservoir.add(torch.arange(first, first + 3.0).unsqueeze(1), torch.arange(first, first + 3))
        >>> reservoir.seen, reservoir.rows()[1].tolist()
        (6, [2, 3])
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.seen = 0
        self._generator = np.random.default_rng(seed)
        self._scores: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._draws: list[Tensor] = []
        self._held = 0
        self._bar = 1.0

    @property
    def is_complete(self) -> bool:
        """Whether every row that was seen is still there."""
        return self.seen <= self.capacity

    def add(self, scores: Tensor, targets: Tensor) -> None:
        """Offer a batch of rows."""
        draws = torch.from_numpy(self._generator.random(len(targets)))
        self.seen += len(targets)
        if self._bar < 1.0:
            chosen = torch.from_numpy(np.flatnonzero(draws.numpy() < self._bar))
            scores, targets, draws = scores[chosen], targets[chosen], draws[chosen]
        self._scores.append(scores)
        self._targets.append(targets)
        self._draws.append(draws)
        self._held += len(draws)
        if self._held > 2 * self.capacity:
            self._shrink()

    def rows(self) -> tuple[Tensor, Tensor]:
        """Scores ``(m, K)`` and targets ``(m,)`` of the rows kept."""
        self._shrink()
        return self._scores[0], self._targets[0]

    def _shrink(self) -> None:
        scores, targets, draws = (torch.cat(parts) for parts in (self._scores, self._targets, self._draws))
        if len(draws) > self.capacity:
            self._bar = float(np.partition(draws.numpy(), self.capacity)[self.capacity])
            chosen = torch.from_numpy(np.flatnonzero(draws.numpy() < self._bar))
            scores, targets, draws = scores[chosen], targets[chosen], draws[chosen]
        self._scores, self._targets, self._draws = [scores.contiguous()], [targets], [draws]
        self._held = len(draws)
