"""Histogram binning: each class's probability is replaced by how often the class came, bin by bin."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins
from metacal.functional.binning import equal_width_edges
from metacal.posthoc.base import Calibrator, FitReport, check_fitted, like, to_array
from metacal.posthoc.one_against_rest import is_class, normalised


class HistogramBinning(Calibrator):
    """How often a class came among samples of a like probability, one against the rest (Zadrozny and Elkan 2001).

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
        came = is_class(targets, num_classes).T.double()
        empty = torch.zeros(num_classes, self.num_bins, dtype=torch.float64, device=scores.device)
        counts = empty.scatter_add(1, bins, torch.ones_like(probs))
        sums = empty.scatter_add(1, bins, came)
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
