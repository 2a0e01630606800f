"""Calibrators that treat each class against the rest: histogram binning and isotonic regression."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import equal_width_edges
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array


class HistogramBinning(Calibrator):
    """How often a class occurs among samples of a similar probability, one against the rest (Zadrozny and Elkan 2001).

    Needs probabilities (of logits the softmax is taken) and some dozens of samples per bin. Only so many different
    values come out, ties are common, and the predicted class may change.

    Args:
        num_bins: M.
        binning: ``"equal_mass"``, as many samples in each bin, or ``"equal_width"``.

    Attributes:
        edges: ``(K, M + 1)``; bin m is ``(edges[m], edges[m + 1]]``, and the outer ones reach to 0 and 1.
        frequencies: ``(K, M)``; the middle of the bin where it was empty.

    Examples:
        >>> import numpy as np
        >>> probs = np.tile([0.1, 0.9], 500)  # of class 1
        >>> targets = np.tile([0, 1, 0, 0], 250)  # class 1 comes half as often as 0.9 says
        >>> binning = HistogramBinning(num_bins=2).fit(probs=probs, targets=targets)
        >>> binning.predict_proba(probs=np.array([0.1, 0.9])).round(2).tolist()
        [0.0, 0.5]
    """

    keeps_predictions = False
    reads = "probs"
    fitted = ("edges", "frequencies")

    edges: NDArray[np.float64]
    frequencies: NDArray[np.float64]

    def __init__(self, num_bins: int = 15, binning: str = "equal_mass") -> None:
        self.num_bins = num_bins
        self.binning = binning

    def _check_params(self) -> None:
        check_num_bins(self.num_bins)
        check_choice("binning", self.binning, ("equal_mass", "equal_width"))

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        num_classes = scores.shape[1]
        probs = scores.double().T.contiguous()  # (K, n)
        edges = equal_width_edges(self.num_bins, scores.device).expand(num_classes, -1)
        if self.binning == "equal_mass":
            ranks = torch.arange(1, self.num_bins, device=scores.device) * len(targets) // self.num_bins
            inner = probs.sort(dim=1).values[:, (ranks - 1).clamp(min=0)]
            edges = torch.cat((edges[:, :1], inner, edges[:, -1:]), dim=1)
        bins = torch.searchsorted(edges[:, 1:-1].contiguous(), probs)
        outcomes = is_class(targets, num_classes).T.double()
        empty = torch.zeros(num_classes, self.num_bins, dtype=torch.float64, device=scores.device)
        counts = empty.scatter_add(1, bins, torch.ones_like(probs))
        sums = empty.scatter_add(1, bins, outcomes)
        middles = (edges[:, 1:] + edges[:, :-1]) / 2.0
        self.edges = to_array(edges)
        self.frequencies = to_array(torch.where(counts > 0, sums / counts.clamp(min=1.0), middles))
        return FitReport()

    def _check_fitted(self) -> None:
        check_fitted("frequencies", self.frequencies, (self.num_classes, self.num_bins), 0.0, 1.0)
        check_fitted("edges", self.edges, (self.num_classes, self.num_bins + 1), 0.0, 1.0)
        check_fitted("steps of edges", np.diff(self.edges), (self.num_classes, self.num_bins), least=0.0)

    def _apply(self, scores: Tensor) -> Tensor:
        inner, frequencies = like(self.edges, scores)[:, 1:-1].contiguous(), like(self.frequencies, scores)
        bins = torch.searchsorted(inner, scores.double().T.contiguous())
        return normalised(frequencies.gather(1, bins).T, scores)


class IsotonicCalibration(Calibrator):
    """The best non-decreasing map of each class's probability, one against the rest (Zadrozny and Elkan 2002).

    Needs probabilities (of logits the softmax is taken) and about a thousand samples: with few it overfits. Gives
    probabilities of exactly 0 or 1, which make the likelihood of a surprise 0. The maps are scikit-learn's
    `IsotonicRegression`, fitted in host memory; the predicted class may change.

    Attributes:
        thresholds: the corners of all maps, one class after another.
        values: the frequencies at the corners.
        starts: ``(K + 1,)``: the corners of class k are ``starts[k]`` to ``starts[k + 1]``.

    Examples:
        >>> import numpy as np
        >>> probs = np.tile([0.1, 0.9], 500)
        >>> targets = np.tile([0, 1, 0, 0], 250)
        >>> isotonic = IsotonicCalibration().fit(probs=probs, targets=targets)
        >>> isotonic.predict_proba(probs=np.array([0.1, 0.5, 0.9])).round(2).tolist()
        [0.0, 0.25, 0.5]
    """

    keeps_predictions = False
    reads = "probs"
    fitted = ("thresholds", "values", "starts")

    thresholds: NDArray[np.float64]
    values: NDArray[np.float64]
    starts: NDArray[np.float64]

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        probs, is_target = to_array(scores), to_array(is_class(targets, scores.shape[1]))
        corners = []
        for column, outcomes in zip(probs.T, is_target.T, strict=True):
            staircase = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(column, outcomes)
            corners.append((staircase.X_thresholds_, staircase.y_thresholds_))
        self.thresholds = np.concatenate([places for places, _ in corners]).astype(np.float64)
        self.values = np.concatenate([heights for _, heights in corners]).astype(np.float64)
        self.starts = np.cumsum([0, *(len(places) for places, _ in corners)]).astype(np.float64)
        return FitReport()

    def _check_fitted(self) -> None:
        corners = len(self.thresholds)
        check_fitted("starts", self.starts, (self.num_classes + 1,), 0.0, corners)
        if (self.starts[0], self.starts[-1]) != (0.0, corners) or not np.array_equal(self.starts, self.starts.round()):
            ends = f"{self.starts[0]:g} ... {self.starts[-1]:g}"
            raise InvalidValueError(f"`starts` must be whole numbers from 0 to {corners}, got {ends}.")
        check_fitted("corners of a class", np.diff(self.starts), (self.num_classes,), least=1.0)
        check_fitted("thresholds", self.thresholds, (corners,))
        check_fitted("values", self.values, (corners,), 0.0, 1.0)
        for name, values in (("thresholds", self.thresholds), ("values", self.values)):
            for steps in map(np.diff, np.split(values, self.starts[1:-1].astype(np.int64))):
                check_fitted(f"steps of {name}", steps, steps.shape, least=0.0)

    def _apply(self, scores: Tensor) -> Tensor:
        thresholds, values = like(self.thresholds, scores), like(self.values, scores)
        wide = scores.double()
        columns = []
        for number in range(wide.shape[1]):
            part = slice(int(self.starts[number]), int(self.starts[number + 1]))
            columns.append(interpolate(wide[:, number].contiguous(), thresholds[part], values[part]))
        return normalised(torch.stack(columns, dim=1), scores)


def interpolate(at: Tensor, places: Tensor, heights: Tensor) -> Tensor:
    """Piecewise linear through the corners, constant beyond the outer ones."""
    if len(places) == 1:
        return heights.expand(len(at))
    right = torch.searchsorted(places.contiguous(), at).clamp(1, len(places) - 1)
    left = right - 1
    width = (places[right] - places[left]).clamp(min=torch.finfo(places.dtype).tiny)
    share = ((at - places[left]) / width).clamp(0.0, 1.0)
    return heights[left] + share * (heights[right] - heights[left])


def normalised(each: Tensor, given: Tensor) -> Tensor:
    """Rows of ``each`` divided by their sum; a row of zeros says nothing and stays as it was ``given``."""
    totals = each.sum(dim=1, keepdim=True)
    is_empty = totals <= 0.0
    return (each / totals.masked_fill(is_empty, 1.0)).where(~is_empty, given.to(each.dtype))


def is_class(targets: Tensor, num_classes: int) -> Tensor:
    """Bool ``(n, K)``: whether each class is the target."""
    return targets.unsqueeze(1) == targets.new_tensor(range(num_classes))
