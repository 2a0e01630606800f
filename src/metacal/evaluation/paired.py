"""Paired comparison of two models: matches rows by id, and computes intervals of differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidFileError
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.scores import ROW_GROUPS, SMOOTH_CELLS, Binned, Ends, class_sums, held_bins, reflected_kernel
from metacal.functional.binning import BinStatistics, equal_width_index
from metacal.functional.intervals import Z_95, EvenLine, HypothesisLine, mean_interval, power_sums

FEW = 5.0
"""Wrong answers to be expected in a bin, below which its scatter comes mostly from its confidences."""

STEPS = 400
"""Places on each model's line of hypotheses between which true errors are interpolated."""

VALUES_AT_ONCE = 2**18
"""Simulated gaps measured together: 1 MB, which stays in cache."""

HALVINGS = 20
TAIL = 0.025


def align_rows(files: Sequence[PredictionFile]) -> list[NDArray[np.int64]] | None:
    """For each file, return the position of its rows in the first one, by id; None if a file has no ids.

    Raises:
        InvalidFileError: an id is there twice, or missing in a file; the message names one.
    """
    columns = [ids for file in files if (ids := file.ids()) is not None]
    if len(columns) < len(files):
        return None
    order = np.argsort(columns[0], kind="stable")
    ordered = columns[0][order]
    places = []
    for file, ids in zip(files, columns, strict=True):
        values, counts = np.unique(ids, return_counts=True)
        if len(values) < len(ids):
            raise InvalidFileError(f"{file.place}: id {values[counts.argmax()]} is there twice; drop one of its rows.")
        for here, there, missing in ((ids, ordered, file), (ordered, ids, files[0])):
            if len(odd := np.setdiff1d(there, here)):
                raise InvalidFileError(f"{missing.place}: has no id {odd[0]}, which another file has; add or drop it.")
        places.append(order[np.searchsorted(ordered, ids)])
    return places


def accuracy_difference(first: Tensor, second: Tensor) -> Ends:
    """95 % interval of accuracy of the second minus the first, from bool ``(n,)``: Agresti and Min (2005).

    Half a row is added to each of the four cells (right and wrong, of either), so that few rows on which the models
    disagree do not make the interval too narrow.
    """
    size = len(first) + 2.0
    gained, lost = (int((second & ~first).sum()) + 0.5) / size, (int((first & ~second).sum()) + 0.5) / size
    half = Z_95 * math.sqrt((gained + lost - (gained - lost) ** 2) / size)
    return gained - lost - half, gained - lost + half


def mean_difference(first: Tensor, second: Tensor) -> Ends:
    """95 % interval of the mean of second minus first, losses ``(n,)`` row by row; NaN where one is infinite."""
    return mean_interval(len(first), power_sums(second - first), least=-math.inf)


@dataclass(frozen=True)
class Cells:
    """One calibration error of one model, as sums over cells of right minus confidence.

    Attributes:
        statistics: of the cells that hold samples, ``(C,)``.
        groups: float32 ``(G, C)``: right minus confidence, over n, added up over groups of rows and centred.
        norm: of the error over the cells.
        smoothing: ``(C, C)``, or None.
        lines: of hypotheses; the interval spans all of them.
    """

    statistics: BinStatistics
    groups: Tensor
    norm: str = "l1"
    smoothing: Tensor | None = None
    lines: tuple[type[HypothesisLine], ...] = (HypothesisLine,)


def error_cells(binned: Binned, smooth_ece: float) -> dict[str, Cells]:
    """Return the cells of each calibration error, by name."""
    confidences, correct, device = binned.confidences, binned.correct, binned.confidences.device
    residuals = (correct.double() - confidences.double()).float()
    row_groups = min(ROW_GROUPS, len(correct))
    group = torch.arange(len(correct), device=device) % row_groups

    def cells(statistics: BinStatistics, index: Tensor, norm: str = "l1", smoothing: Tensor | None = None) -> Cells:
        sums = torch.zeros(row_groups, statistics.num_bins, device=device)
        sums.view(-1).index_add_(0, group * statistics.num_bins + index, residuals)
        return Cells(statistics, _centred(sums, len(correct)), norm, smoothing)

    def by_edges(statistics: BinStatistics) -> Tensor:
        inner = statistics.edges[1:-1].to(confidences.dtype).contiguous()
        return torch.bucketize(confidences, inner)

    width = equal_width_index(confidences, binned.equal_width.num_bins)
    mass = by_edges(binned.equal_mass)
    kernel = reflected_kernel(SMOOTH_CELLS, smooth_ece, device)
    return {
        "ece": cells(binned.equal_width, width),
        "mce": cells(binned.equal_width, width, "max"),
        "adaptive_ece": cells(binned.equal_mass, mass),
        "classwise_ece": _class_cells(binned),
        "debiased_ece_l2": cells(binned.equal_mass, mass, "l2"),
        "sweep_ece": cells(binned.sweep, by_edges(binned.sweep)),
        "smooth_ece": cells(binned.smooth, equal_width_index(confidences, SMOOTH_CELLS), smoothing=kernel),
    }


def _class_cells(binned: Binned) -> Cells:
    """Return the non-empty bins of all classes; every sample counts once for each class.

    Most of them may hold a few samples. Five right answers hardly scatter, so the scatter of such a bin comes mostly
    from its confidences. And where bins are mostly noise it matters which of them have a true gap: the likeliest gaps
    add much to the measured error, gaps on `EvenLine` little. Both lines are used.
    """
    sums, rows = class_sums(binned.inputs, binned.classes, None)
    count, num_classes = len(binned.correct), binned.inputs.num_classes
    groups = _centred(sums, rows * num_classes) * math.sqrt(rows / count)
    statistics = held_bins(binned.classes)
    spreads = statistics.confidences * (1.0 - statistics.confidences)
    expected, observed = statistics.weights * spreads / statistics.total, groups.double().square().sum(dim=0)
    share = FEW / (statistics.counts * spreads + FEW)
    ratio = torch.lerp(observed, expected, share) / observed.clamp(min=torch.finfo(observed.dtype).tiny)
    return Cells(statistics, groups * ratio.sqrt().float(), lines=(HypothesisLine, EvenLine))


def _centred(sums: Tensor, count: int) -> Tensor:
    return (sums - sums.mean(dim=0)) / count


class _Model:
    """One model on a line of hypotheses, with the noise of its own rows."""

    def __init__(self, cells: Cells, line: type[HypothesisLine], noise: Tensor) -> None:
        nothing = torch.zeros(1, cells.statistics.num_bins, device=noise.device)
        self.line = line(cells.statistics, cells.norm, cells.smoothing, nothing, nothing)
        self.noise = torch.split(noise, max(1, VALUES_AT_ONCE // cells.statistics.num_bins))
        shift = torch.logspace(-4, 4, STEPS // 2, dtype=torch.float64, device=noise.device)
        places = shift / (1.0 + shift)
        self.places = torch.cat((places.flip(0), places.new_zeros(1), -places))  # calibrated first: errors rise
        self.errors = self.line.error(self.line.gaps(self.places)).cummax(0).values.cpu().numpy()
        self.measured = self.line.error(cells.statistics.gaps).item()

    def draw(self, error: float) -> Tensor:
        """Simulated errors ``(R,)`` of data sets with this true error."""
        place = np.interp(error, self.errors, self.places.cpu().numpy())
        gaps = self.line.gaps(self.places.new_tensor([place])) if error > 0.0 else torch.zeros_like(self.line.weights)
        weighted = (gaps * self.line.weights).float()
        return torch.cat([self.line.measure(weighted + noise) for noise in self.noise])

    @cached_property
    def typical(self) -> float:
        """The true error whose median measured error is the observed one; 0 if chance alone gives more."""
        low, high = 0.0, float(self.errors[-1])
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            is_below = self.draw(middle).median().item() < self.measured
            low, high = (middle, high) if is_below else (low, middle)
        return 0.0 if low == 0.0 else 0.5 * (low + high)


def error_difference(
    first: Cells, second: Cells, num_resamples: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    r"""The true error of the second model minus that of the first, and its 95 % interval by test inversion.

    Each model has a line of hypotheses (see `error_interval`), and a typical true error: the one whose data sets
    measure what was measured, in the median, so that what chance adds to each error is taken out. A
    difference :math:`\delta` is tested at the pair of true errors that is :math:`\delta` apart and
    nearest to the typical ones, in units of each model's scatter; neither is below 0. Data sets of both are drawn with
    the same normal weights of rows, so what they share cancels out. The interval runs over the differences under which
    the measured one is in no tail of 2.5 %, on any of the models' lines.
    """
    device = first.groups.device
    generator = torch.Generator(device=device).manual_seed(seed)
    weights = torch.randn(num_resamples, len(first.groups), generator=generator, device=device)
    ones, twos = (_models(cells, weights @ cells.groups) for cells in (first, second))
    found = [_difference(one, two) for one in ones for two in twos]
    return found[0][0], min(low for _, low, _ in found), max(high for _, _, high in found)


def _models(cells: Cells, noise: Tensor) -> list[_Model]:
    return [_Model(cells, line, noise) for line in cells.lines]


def _difference(one: _Model, two: _Model) -> tuple[float, float, float]:
    measured = two.measured - one.measured
    start, other = one.typical, two.typical
    spread, others = one.draw(start).var().item(), two.draw(other).var().item()
    share = spread / (spread + others) if spread + others > 0.0 else 0.5

    def tails(difference: float) -> tuple[float, float]:
        low = start - share * (difference - (other - start))
        low = max(low, 0.0, -difference)
        drawn = two.draw(low + difference) - one.draw(low)
        return (drawn >= measured - 1e-9).double().mean().item(), (drawn <= measured + 1e-9).double().mean().item()

    ends = []
    for side in (0, 1):
        # From where the measured difference is typical outwards, to the last difference that passes.
        outside, inside = (-1.0 if side == 0 else 1.0), other - start
        for _ in range(HALVINGS):
            middle = 0.5 * (outside + inside)
            outside, inside = (outside, middle) if tails(middle)[side] >= TAIL else (middle, inside)
        ends.append(0.5 * (outside + inside))
    return other - start, ends[0], ends[1]
