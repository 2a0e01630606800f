"""Figures that need only sums, from one pass over the rows in constant memory."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.evaluation.prediction_file import CHUNK_ELEMENTS
from metacal.evaluation.scores import HIGHEST_BRIER, RESAMPLES, Ends, accuracy_interval, ends_of
from metacal.functional.binning import BinStatistics, calibration_error, fill_equal_widths
from metacal.functional.intervals import error_interval, mean_interval, power_sums


@dataclass
class StreamedScores:
    """Accuracy, NLL, Brier score, ECE and MCE of rows that arrive in batches.

    Values are not checked: a `PredictionFile` has done so. Bin sums are exact integers, the others are in float64, so
    batches of any size give the same figures.

    Examples:
        >>> import torch
        >>> streamed = StreamedScores(is_logits=False)
        >>> for row, target in (([0.9, 0.1], 0), ([0.4, 0.6], 0)):
        ...     streamed.update(torch.tensor([row]), torch.tensor([target]))
        >>> figures = streamed.figures()
        >>> figures["accuracy"], round(figures["ece"], 4)
        (0.5, 0.35)
    """

    is_logits: bool
    num_bins: int = 15
    statistics: BinStatistics = field(init=False)
    count: int = field(init=False, default=0)
    _sums: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.statistics = BinStatistics.zeros(self.num_bins, device=torch.device("cpu"))
        self._sums = np.zeros((2, 3))  # of the two losses, their squares and their cubes

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch: scores ``(m, K)`` in any memory order, targets int64 ``(m,)``."""
        by_class, labels = scores.numpy().T, targets.numpy()
        rows = max(256, CHUNK_ELEMENTS // scores.shape[1])
        for first in range(0, len(labels), rows):
            some = slice(first, first + rows)
            self._add(np.ascontiguousarray(by_class[:, some]), labels[some])

    def figures(self) -> dict[str, float]:
        """The figures by name."""
        return {
            "accuracy": int(self.statistics.correct_sums.sum()) / self.count,
            "nll": float(self._sums[0, 0]) / self.count,
            "brier": float(self._sums[1, 0]) / self.count,
            "ece": calibration_error(self.statistics).item(),
            "mce": calibration_error(self.statistics, "max").item(),
        }

    def intervals(self, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Ends]:
        """95 % intervals of the figures, by name; the arguments are those of `error_interval`."""
        likelihood, distance = (tuple(sums) for sums in self._sums.tolist())
        interval = partial(error_interval, self.statistics, num_resamples=num_resamples, seed=seed)
        return {
            "accuracy": accuracy_interval(int(self.statistics.correct_sums.sum()), self.count),
            "nll": mean_interval(self.count, likelihood),
            "brier": mean_interval(self.count, distance, HIGHEST_BRIER),
            "ece": ends_of(interval("l1")),
            "mce": ends_of(interval("max")),
        }

    @np.errstate(divide="ignore", over="ignore")  # a target of probability 0: its loss is infinite
    def _add(self, by_class: NDArray[Any], targets: NDArray[np.int64]) -> None:
        """Add a chunk ``(K, m)`` that fits in cache; every pass runs along whole rows of it, one for each class."""
        count = len(targets)
        places = targets * count  # of the targets, in the flat array
        places += np.arange(count)
        top = np.maximum.reduce(by_class, axis=0)
        at_target = by_class.reshape(-1).take(places)
        if self.is_logits:
            work = np.exp(by_class - top)
            work.reshape(-1)[places] = 0.0  # summed up apart from the target, whose 1 would swallow small numbers
            others = np.add.reduce(work, axis=0)
            below_top = top.astype(np.float64) - at_target
            confidences = 1.0 / (others + np.exp(at_target - top))
            losses = np.log1p(others + np.expm1(-below_top)) + below_top
            work *= confidences
            missing = others * confidences
            np.square(work, out=work)
        else:
            confidences = top
            losses = -np.log(np.minimum(at_target, 1.0))
            missing = 1.0 - at_target
            work = np.square(by_class)
            work.reshape(-1)[places] = 0.0
        # What is left are the squares of the other classes.
        rival = np.maximum.reduce(work, axis=0)
        distances = np.add.reduce(work, axis=0)
        distances += np.square(missing)
        correct = at_target == top
        may_tie = np.flatnonzero(correct & (rival >= np.square(confidences)))
        if len(may_tie):  # the first of equals is what the model says
            is_top = by_class.take(may_tie, axis=1) == top[may_tie]
            correct[may_tie] = is_top.argmax(axis=0) == targets[may_tie]
        columns = torch.from_numpy(confidences), torch.from_numpy(correct)
        self.statistics = self.statistics + fill_equal_widths(*columns, self.num_bins, may_hold_nan=False)
        self._sums += [power_sums(torch.from_numpy(losses)), power_sums(torch.from_numpy(distances))]
        self.count += count
