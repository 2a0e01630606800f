"""Isotonic calibration: each class's probability through a rising staircase."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.one_against_rest import is_class, normalised


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
        probs, came = to_array(scores), to_array(is_class(targets, scores.shape[1]))
        corners = []
        for column, outcomes in zip(probs.T, came.T, strict=True):
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
