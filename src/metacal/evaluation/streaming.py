"""Figures that need no more than sums: rows are read once, and memory does not grow with their number."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.evaluation.tables import CHUNK_ELEMENTS
from metacal.functional.binning import UNITS, BinStatistics, calibration_error
from metacal.functional.inputs import row_sum_tolerance


@dataclass
class StreamedScores:
    """Accuracy, NLL, Brier score, ECE and MCE of rows that come in batches.

    Values are not checked: a `PredictionFile` has done so. Bin sums are exact integers, the others are in float64, so
    batches of any size give the same figures.

    Args:
        is_logits: what the scores are.
        num_bins: M.

    Examples:
        >>> import torch
        >>> streamed = StreamedScores(is_logits=False)
        >>> for row, target in (([0.9, 0.1], 0), ([0.4, 0.6], 0)):
        ...     streamed.update(torch.tensor([row]), torch.tensor([target]))
        >>> streamed.accuracy, round(streamed.ece, 4)
        (0.5, 0.35)
    """

    is_logits: bool
    num_bins: int = 15
    statistics: BinStatistics = field(init=False)
    count: int = field(init=False, default=0)
    _sums: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.statistics = BinStatistics.zeros(self.num_bins, device=torch.device("cpu"))
        self._sums = torch.zeros(4, dtype=torch.float64)

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores ``(m, K)`` in any memory order, targets int64 ``(m,)``."""
        rows = max(256, CHUNK_ELEMENTS // scores.shape[1])
        for some, labels in zip(torch.split(scores, rows), torch.split(targets, rows), strict=True):
            self._add(some, labels)

    @property
    def accuracy(self) -> float:
        """Share of rows whose first class with the top score is the target."""
        return int(self.statistics.correct_sums.sum()) / self.count

    @property
    def ece(self) -> float:
        """Over equal-width bins."""
        return calibration_error(self.statistics).item()

    @property
    def mce(self) -> float:
        """The largest gap of these bins."""
        return calibration_error(self.statistics, "max").item()

    @property
    def nll(self) -> float:
        """Mean, in nats."""
        return float(self._sums[0]) / self.count

    @property
    def brier(self) -> float:
        """Mean, in [0, 2]."""
        return float(self._sums[1]) / self.count

    @property
    def standard_errors(self) -> dict[str, float]:
        """Of the three figures that are plain means."""
        means = (self.accuracy, self.nll, self.brier)
        squares = (self.accuracy, float(self._sums[2]) / self.count, float(self._sums[3]) / self.count)
        return {
            name: math.sqrt(max(square - mean**2, 0.0) / self.count)
            for name, mean, square in zip(("accuracy", "nll", "brier"), means, squares, strict=True)
        }

    def _add(self, scores: Tensor, targets: Tensor) -> None:
        by_class = scores.t().contiguous()  # (K, m): reductions over classes run along whole columns
        places = torch.arange(len(targets)).add_(targets, alpha=len(targets))  # of the targets, in the flat array
        top = by_class.amax(dim=0)
        at_target = by_class.view(-1).index_select(0, places)
        if self.is_logits:
            probs = (by_class - top).exp_()
            total = probs.sum(dim=0)
            confidences = total.reciprocal()
            losses = total.log().add_(top - at_target)
            probs.mul_(confidences)
            missing = 1.0 - probs.view(-1).index_select(0, places)
            squares = probs.square_()
        else:
            confidences, losses = top, at_target.clamp(max=1.0).log_().neg_()
            missing = 1.0 - at_target
            squares = by_class.square()
        squares.view(-1).index_fill_(0, places, 0.0)
        distances = squares.sum(dim=0).add_(missing.square_())
        correct = _first_tops(by_class, top, at_target == top, confidences, targets)
        self.statistics = self.statistics + cell_statistics(confidences, correct, self.statistics.edges)
        self._sums += torch.stack(
            (
                losses.sum(dtype=torch.float64),
                distances.sum(dtype=torch.float64),
                torch.dot(losses, losses).double(),
                torch.dot(distances, distances).double(),
            )
        )
        self.count += len(targets)


def _first_tops(by_class: Tensor, top: Tensor, is_top: Tensor, confidences: Tensor, targets: Tensor) -> Tensor:
    """Whether each target, known to have the top score or not, is the first class that has it."""
    # Two tied tops need twice their value within the row's sum: only rows below that are looked at.
    may_tie = (confidences <= 0.5 + row_sum_tolerance(by_class.dtype)).logical_and_(is_top)
    rows = torch.from_numpy(np.flatnonzero(may_tie.numpy()))
    if len(rows):
        some = by_class.index_select(1, rows)
        is_tied = (some == top[rows]).sum(dim=0) > 1
        if bool(is_tied.any()):
            tied = rows[is_tied]
            is_top[tied] = by_class.index_select(1, tied).argmax(dim=0) == targets[tied]
    return is_top


def cell_statistics(confidences: Tensor, correct: Tensor, edges: Tensor) -> BinStatistics:
    """`equal_width_statistics` of a chunk, to the bit but faster on a CPU.

    Units of at most 2**20 confidences add up exactly in float64, so NumPy's weighted counting can be used.
    """
    num_bins = len(edges) - 1
    cells = 2 * _bin_index(confidences.numpy(), edges.numpy()) + correct.numpy()
    units = (confidences.clamp(0.0, 1.0).double() * UNITS).round_().numpy()
    counts = torch.from_numpy(np.bincount(cells, minlength=2 * num_bins)).view(num_bins, 2)
    sums = torch.from_numpy(np.bincount(cells, weights=units, minlength=2 * num_bins)).to(torch.int64)
    return BinStatistics(counts.sum(1), counts[:, 1], sums.view(num_bins, 2).sum(1), edges)


def _bin_index(confidences: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """`equal_width_index` in NumPy: see there for why a hair down and one comparison settle it."""
    num_bins = len(edges) - 1
    upper = edges[1:].astype(confidences.dtype)
    upper[-1] = np.inf
    shrink = confidences.dtype.type(num_bins * (1.0 - 8.0 * np.finfo(confidences.dtype).eps))
    lower = np.ceil(confidences * shrink)
    lower -= 1
    index: NDArray[np.int64] = np.clip(lower, 0, num_bins - 1, out=lower).astype(np.int64)
    index += confidences > upper.take(index)
    return index
