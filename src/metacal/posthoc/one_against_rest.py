"""Calibrators that treat each class against the rest: histogram binning and isotonic regression."""

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import equal_width_edges
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array


class OneAgainstRest:
    """Base: a map for each class, normalised over classes and mixed with a little of the uniform distribution.

    The result is ``(1 - s) p + s / K`` with ``s = 1 / (n + 1)``: no probability is 0. A row in which every map gives 0
    says nothing; it keeps the probabilities that it came with.
    """

    keeps_predictions: ClassVar[bool] = False
    reads: ClassVar[Literal["logits", "probs"]] = "probs"
    uniform_share_: float

    def _fit(self, scores: Tensor, targets: Tensor) -> FitReport:
        self.uniform_share_ = 1.0 / (len(targets) + 1)
        return self._fit_maps(scores, targets)

    def _check_fitted(self) -> None:
        check_fitted("uniform_share", self.uniform_share_, (), 0.0, 0.5)  # 0 in files written before it was kept
        self._check_maps()

    def _apply(self, scores: Tensor) -> Tensor:
        each = self._map(scores.double())
        totals = each.sum(dim=1, keepdim=True)
        is_empty = totals <= 0.0
        probs = torch.where(is_empty, scores.to(each.dtype), each / torch.where(is_empty, 1.0, totals))
        return (1.0 - self.uniform_share_) * probs + self.uniform_share_ / scores.shape[1]

    def _fit_maps(self, scores: Tensor, targets: Tensor) -> FitReport:
        raise NotImplementedError

    def _check_maps(self) -> None:
        raise NotImplementedError

    def _map(self, probs: Tensor) -> Tensor:
        """Map each class's float64 probabilities ``(n, K)``."""
        raise NotImplementedError


class HistogramBinning(OneAgainstRest, Calibrator):
    """How often a class occurs among samples of a similar probability, one against the rest (Zadrozny and Elkan 2001).

    Needs probabilities (of logits the softmax is taken) and some dozens of samples per bin. Only so many different
    values come out, ties are common, and the predicted class may change.

    Args:
        num_bins: M.
        binning: ``"equal_mass"``, as many samples in each bin, or ``"equal_width"``.

    Attributes:
        edges_: ``(K, M + 1)``; bin m is ``(edges[m], edges[m + 1]]``, and the outer ones reach to 0 and 1.
        frequencies_: ``(K, M)``; the middle of the bin where it was empty.
        uniform_share_: weight of the uniform distribution, ``1 / (n + 1)``: no probability is 0.

    Examples:
        >>> import numpy as np
        >>> probs = np.tile([0.1, 0.9], 500)  # of class 1
        >>> targets = np.tile([0, 1, 0, 0], 250)  # class 1 comes half as often as 0.9 says
        >>> binning = HistogramBinning(num_bins=2).fit(probs=probs, targets=targets)
        >>> binning.predict_proba(probs=np.array([0.1, 0.9])).round(2).tolist()
        [0.0, 0.5]
    """

    fitted = ("edges_", "frequencies_", "uniform_share_")

    edges_: NDArray[np.float64]
    frequencies_: NDArray[np.float64]

    def __init__(self, num_bins: int = 15, binning: str = "equal_mass") -> None:
        self.num_bins = num_bins
        self.binning = binning

    def _check_params(self) -> None:
        check_num_bins(self.num_bins)
        check_choice("binning", self.binning, ("equal_mass", "equal_width"))

    def _fit_maps(self, scores: Tensor, targets: Tensor) -> FitReport:
        num_classes = scores.shape[1]
        probs = scores.double().T.contiguous()  # (K, n)
        edges = equal_width_edges(self.num_bins, scores.device).expand(num_classes, -1)
        if self.binning == "equal_mass":
            ranks = (torch.arange(1, self.num_bins, device=scores.device) * len(targets) // self.num_bins).clamp(min=1)
            ordered = probs.sort(dim=1).values
            inner = (ordered[:, ranks - 1] + ordered[:, ranks.clamp(max=len(targets) - 1)]) / 2.0  # no sample is on it
            edges = torch.cat((edges[:, :1], inner, edges[:, -1:]), dim=1)
        bins = torch.searchsorted(edges[:, 1:-1].contiguous(), probs)
        outcomes = is_class(targets, num_classes).T.double()
        empty = torch.zeros(num_classes, self.num_bins, dtype=torch.float64, device=scores.device)
        counts = empty.scatter_add(1, bins, torch.ones_like(probs))
        sums = empty.scatter_add(1, bins, outcomes)
        middles = (edges[:, 1:] + edges[:, :-1]) / 2.0
        self.edges_ = to_array(edges)
        self.frequencies_ = to_array(torch.where(counts > 0, sums / counts.clamp(min=1.0), middles))
        return FitReport()

    def _check_maps(self) -> None:
        check_fitted("frequencies", self.frequencies_, (self.num_classes_, self.num_bins), 0.0, 1.0)
        check_fitted("edges", self.edges_, (self.num_classes_, self.num_bins + 1), 0.0, 1.0)
        check_fitted("steps of edges", np.diff(self.edges_), (self.num_classes_, self.num_bins), least=0.0)

    def _map(self, probs: Tensor) -> Tensor:
        bins = find_places(like(self.edges_, probs)[:, 1:-1], probs)
        return like(self.frequencies_, probs).gather(1, bins).T


class IsotonicCalibration(OneAgainstRest, Calibrator):
    """The best non-decreasing map of each class's probability, one against the rest (Zadrozny and Elkan 2002).

    Needs probabilities (of logits the softmax is taken) and about a thousand samples: with few it overfits. The maps
    are scikit-learn's `IsotonicRegression`, fitted in host memory; the predicted class may change.

    Attributes:
        thresholds_: the corners of all maps, one class after another.
        values_: the frequencies at the corners.
        starts_: ``(K + 1,)``: the corners of class k are ``starts[k]`` to ``starts[k + 1]``.
        uniform_share_: weight of the uniform distribution, ``1 / (n + 1)``: no probability is 0.

    Examples:
        >>> import numpy as np
        >>> probs = np.tile([0.1, 0.9], 500)
        >>> targets = np.tile([0, 1, 0, 0], 250)
        >>> isotonic = IsotonicCalibration().fit(probs=probs, targets=targets)
        >>> isotonic.predict_proba(probs=np.array([0.1, 0.5, 0.9])).round(2).tolist()
        [0.0, 0.25, 0.5]
    """

    fitted = ("thresholds_", "values_", "starts_", "uniform_share_")

    thresholds_: NDArray[np.float64]
    values_: NDArray[np.float64]
    starts_: NDArray[np.float64]

    def _fit_maps(self, scores: Tensor, targets: Tensor) -> FitReport:
        probs, is_target = to_array(scores), to_array(is_class(targets, scores.shape[1]))
        corners = []
        for column, outcomes in zip(probs.T, is_target.T, strict=True):
            staircase = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(column, outcomes)
            corners.append((staircase.X_thresholds_, staircase.y_thresholds_))
        self.thresholds_ = np.concatenate([places for places, _ in corners]).astype(np.float64)
        self.values_ = np.concatenate([heights for _, heights in corners]).astype(np.float64)
        self.starts_ = np.cumsum([0, *(len(places) for places, _ in corners)]).astype(np.float64)
        return FitReport()

    def _check_maps(self) -> None:
        corners = len(self.thresholds_)
        check_fitted("starts", self.starts_, (self.num_classes_ + 1,), 0.0, corners)
        if (self.starts_[0], self.starts_[-1]) != (0.0, corners) or not np.array_equal(
            self.starts_, self.starts_.round()
        ):
            ends = f"{self.starts_[0]:g} ... {self.starts_[-1]:g}"
            raise InvalidValueError(f"`starts` must be whole numbers from 0 to {corners}, got {ends}.")
        check_fitted("corners of a class", np.diff(self.starts_), (self.num_classes_,), least=1.0)
        check_fitted("thresholds", self.thresholds_, (corners,))
        check_fitted("values", self.values_, (corners,), 0.0, 1.0)
        for name, values in (("thresholds", self.thresholds_), ("values", self.values_)):
            for steps in map(np.diff, np.split(values, self.starts_[1:-1].astype(np.int64))):
                check_fitted(f"steps of {name}", steps, steps.shape, least=0.0)

    def _map(self, probs: Tensor) -> Tensor:
        """Piecewise linear through the corners, constant beyond the outer ones."""
        thresholds, values = (like(self._padded(corners), probs) for corners in (self.thresholds_, self.values_))
        right = find_places(thresholds, probs).clamp(1, thresholds.shape[1] - 1)
        (low, high), (start, end) = (
            (each.gather(1, right - 1), each.gather(1, right)) for each in (thresholds, values)
        )
        share = ((probs.T - low) / (high - low).clamp(min=torch.finfo(probs.dtype).tiny)).clamp(0.0, 1.0)
        return (start + share * (end - start)).T

    def _padded(self, corners: NDArray[np.float64]) -> NDArray[np.float64]:
        """Corners ``(K, M)`` of all maps, M >= 2: the last of each is repeated."""
        starts = self.starts_.astype(np.int64)
        most = max(2, int(np.diff(starts).max()))
        padded: NDArray[np.float64] = corners[np.minimum(starts[:-1, None] + np.arange(most), starts[1:, None] - 1)]
        return padded


def find_places(edges: Tensor, at: Tensor) -> Tensor:
    """How many of a class's edges ``(K, M)`` lie below each of its values ``(n, K)``; int ``(K, n)``."""
    if torch.compiler.is_compiling():  # in an export: what every runtime has
        return (at.T.unsqueeze(2) > edges.unsqueeze(1)).sum(dim=2)
    return torch.searchsorted(edges.contiguous(), at.T.contiguous())


def is_class(targets: Tensor, num_classes: int) -> Tensor:
    """Bool ``(n, K)``: whether each class is the target."""
    return targets.unsqueeze(1) == targets.new_tensor(range(num_classes))
