"""Accuracy, proper scores and calibration errors of predictions, with their 95 % intervals.

Intervals: Wilson's for accuracy, Hall's for mean losses, test inversion for calibration errors.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from metacal.errors import MissingExtraError
from metacal.evaluation.decisions import average_precision, roc_auc
from metacal.functional.binning import (
    BinStatistics,
    calibration_error,
    confidence_and_correctness,
    equal_width_index,
    equal_width_statistics,
)
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import class_statistics, debiased_error, smooth_error, sweep_samples
from metacal.functional.equal_mass import SortedSamples
from metacal.functional.inputs import Inputs, at_least_float32, read_inputs
from metacal.functional.intervals import Interval, error_interval, mean_interval, power_sums, share_interval
from metacal.functional.proper_scores import brier_sums, likelihood_sums, split_brier

if TYPE_CHECKING:
    from pandas import DataFrame

    from metacal.evaluation.predictions import Predictions

RESAMPLES = 1000
LARGE = 1.96
"""Standard errors beyond which chance does not explain a difference."""

SMOOTH_CELLS = 128
"""Cells of confidence over which the smooth error is drawn."""

ROW_GROUPS = 1024
"""Groups of rows whose residuals are drawn together."""

NOISE_ROWS = 100_000
"""Rows from which the scatter of classwise bins is estimated."""

HIGHEST_BRIER = 2.0
Ends = tuple[float, float]
Bound = Literal["upper", "lower"]


@dataclass(frozen=True)
class Scores:
    """Figures of one set of multiclass predictions: fractions in [0, 1] (NLL in nats, Brier in [0, 2])."""

    accuracy: float
    nll: float
    brier: float
    brier_calibration: float
    brier_refinement: float
    ece: float
    ece_low: float
    ece_high: float
    mce: float
    adaptive_ece: float
    classwise_ece: float
    debiased_ece_l2: float
    sweep_ece: float
    smooth_ece: float

    def as_dict(self) -> dict[str, float]:
        """Figures by name, for JSON."""
        return asdict(self)


@public
def score_predictions(
    *, logits: Tensor | None = None, probs: Tensor | None = None, targets: Tensor, num_bins: int = 15, seed: int = 0
) -> Scores:
    """Score multiclass logits or probabilities ``(n, K)`` against targets ``(n,)``; ``seed`` is of the ECE's interval.

    Examples:
        >>> from metacal.evaluation import example_predictions
        >>> probs, targets = example_predictions()
        >>> scores = score_predictions(probs=probs, targets=targets)
        >>> round(scores.accuracy, 4), round(scores.ece, 4)
        (0.9109, 0.0537)
    """
    binned = Binned.of(read_inputs(logits=logits, probs=probs, targets=targets, classes_only=True), num_bins)
    _, low, high = error_interval(binned.equal_width, seed=seed)
    return Scores(**binned.figures(), ece_low=low.item(), ece_high=high.item())


def figures_with_intervals(
    predictions: "Predictions", *, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, float]:
    """The figures of `Scores` by name, with ``x_low`` and ``x_high`` of each x; arguments as in `evaluate_file`."""
    checked = replace(predictions.inputs, validate=True)
    return Binned.of(checked, num_bins).with_intervals(num_resamples, seed)


@dataclass(frozen=True)
class TopLabel:
    """Binned confidences in the predicted classes, from which top-label figures and intervals are computed.

    Attributes:
        confidences: of the predicted classes, ``(n,)``.
        correct: bool ``(n,)``.
        equal_width: ``(M,)``.
        equal_mass: ``(M,)``.
        sweep: as many bins as keep the accuracies in order.
    """

    confidences: Tensor
    correct: Tensor
    equal_width: BinStatistics
    equal_mass: BinStatistics
    sweep: BinStatistics

    @classmethod
    def of_confidences(cls, confidences: Tensor, correct: Tensor, num_bins: int) -> "TopLabel":
        """Bin the rows."""
        samples = SortedSamples(confidences, correct)
        return cls(
            confidences,
            correct,
            equal_width=equal_width_statistics(confidences, correct, num_bins),
            equal_mass=samples.statistics(num_bins),
            sweep=sweep_samples(samples),
        )

    @cached_property
    def smooth(self) -> BinStatistics:
        """Statistics over the cells of the smooth calibration error."""
        return equal_width_statistics(self.confidences, self.correct, SMOOTH_CELLS)

    def take(self, rows: Tensor) -> "TopLabel":
        """Select rows by a mask."""
        return TopLabel.of_confidences(self.confidences[rows], self.correct[rows], self.equal_width.num_bins)

    def figures(self) -> dict[str, float]:
        """The figures by name."""
        return {
            "accuracy": self.correct.double().mean().item(),
            "ece": calibration_error(self.equal_width).item(),
            "mce": calibration_error(self.equal_width, "max").item(),
            "adaptive_ece": calibration_error(self.equal_mass).item(),
            "debiased_ece_l2": debiased_error(self.equal_mass).item(),
            "sweep_ece": calibration_error(self.sweep).item(),
            "smooth_ece": smooth_error(self.confidences, self.correct).item(),
        }

    def intervals(self, smooth_ece: float, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Ends]:
        """95 % intervals by name; ``smooth_ece`` is the estimate, whose kernel bandwidth is used."""
        kernel = reflected_kernel(SMOOTH_CELLS, smooth_ece, self.confidences.device)
        interval = partial(error_interval, num_resamples=num_resamples, seed=seed)
        return {
            "accuracy": accuracy_interval(int(self.correct.sum()), len(self.correct)),
            "ece": ends_of(interval(self.equal_width)),
            "mce": ends_of(interval(self.equal_width, "max")),
            "adaptive_ece": ends_of(interval(self.equal_mass)),
            "debiased_ece_l2": ends_of(interval(self.equal_mass, "l2")),
            "sweep_ece": ends_of(interval(self.sweep)),
            "smooth_ece": ends_of(interval(self.smooth, smoothing=kernel)),
        }

    def with_intervals(self, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, float]:
        """The figures by name, with the ends of all intervals."""
        figures = self.figures()
        return figures | by_end(self.intervals(figures["smooth_ece"], num_resamples, seed))


@dataclass(frozen=True)
class Binned(TopLabel):
    """Binned predictions of all classes.

    Attributes:
        inputs: scores ``(n, K)`` and targets.
        classes: each class against the rest, ``(K, M)``.
    """

    inputs: Inputs
    classes: BinStatistics

    @classmethod
    def of(cls, inputs: Inputs, num_bins: int) -> "Binned":
        """Bin the rows; values are checked if the inputs say so."""
        confidences, correct = confidence_and_correctness(inputs)
        inputs = replace(inputs, validate=False)  # reading the confidences has checked every value
        top = TopLabel.of_confidences(confidences, correct, num_bins)
        return cls(**vars(top), inputs=inputs, classes=class_statistics(inputs, num_bins))

    @property
    def positive(self) -> Tensor:
        """Probabilities of class 1, ``(n,)``, in float32 or wider."""
        return self.inputs.to_probs(at_least_float32(self.inputs.scores))[:, 1]

    @cached_property
    def losses_and_distances(self) -> tuple[Tensor, Tensor]:
        """-log p(target) and the squared distance of each row, float64; the first is finite for logits of any size."""
        rows = []
        for scores, targets in self.inputs.chunks(temporaries=8):
            target = targets.unsqueeze(1)
            probs = self.inputs.to_probs(scores).double()
            at_target = probs.gather(1, target).squeeze(1)
            distances = probs.square().sum(dim=1) - at_target.square() + (1.0 - at_target).square()
            if self.inputs.is_logits:
                losses = -torch.log_softmax(scores.double(), dim=1).gather(1, target).squeeze(1)
            else:
                losses = -at_target.clamp(max=1.0).log()
            rows.append(torch.stack((losses, distances)))
        losses, distances = torch.cat(rows, dim=1)
        return losses, distances

    def take(self, rows: Tensor) -> "Binned":
        """Select rows by a mask."""
        some = replace(self.inputs, scores=self.inputs.scores[rows], targets=self.inputs.targets[rows])
        return Binned.of(some, self.equal_width.num_bins)

    def figures(self) -> dict[str, float]:
        """The figures of `Scores` by name, without the interval."""
        brier_sum, count = brier_sums(self.inputs)
        brier_parts = split_brier(brier_sum / count, count, self.classes)
        return super().figures() | {
            "nll": likelihood_sums(self.inputs)[0].item() / len(self.correct),
            "brier": brier_sum.item() / len(self.correct),
            "brier_calibration": brier_parts.calibration.item(),
            "brier_refinement": brier_parts.refinement.item(),
            "classwise_ece": calibration_error(self.classes).mean().item(),
        }

    def intervals(self, smooth_ece: float, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Ends]:
        """95 % intervals by name, including NLL, Brier score and classwise error."""
        losses, distances = self.losses_and_distances
        cells, noise = class_cells(self.inputs, self.classes, num_resamples, seed)
        return super().intervals(smooth_ece, num_resamples, seed) | {
            "nll": mean_interval(len(losses), power_sums(losses)),
            "brier": mean_interval(len(distances), power_sums(distances), HIGHEST_BRIER),
            "classwise_ece": ends_of(error_interval(cells, noise=noise, num_resamples=num_resamples, seed=seed)),
        }

    def with_intervals(self, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, float]:
        """The figures by name with intervals; for a binary model also those of class 1."""
        figures = super().with_intervals(num_resamples, seed)
        if self.inputs.num_classes != 2:
            return figures
        scores, is_positive = self.positive, self.inputs.targets == 1
        statistics = equal_width_statistics(scores, is_positive, self.equal_width.num_bins)
        ece = error_interval(statistics, num_resamples=num_resamples, seed=seed)
        area, low, high = roc_auc(scores, is_positive)
        ends = by_end({"positive_ece": ends_of(ece), "roc_auc": (low, high)})
        binary = {"positive_ece": ece.estimate.item(), "roc_auc": area}
        return figures | binary | ends | {"average_precision": average_precision(scores, is_positive)}


def ends_of(interval: Interval) -> Ends:
    """Return the two ends of an interval as numbers."""
    return interval.low.item(), interval.high.item()


def by_end(intervals: dict[str, Ends]) -> dict[str, float]:
    """Return ``x_low`` and ``x_high`` for every x."""
    sides = (("low", 0), ("high", 1))
    return {f"{name}_{end}": ends[side] for name, ends in intervals.items() for end, side in sides}


def only_bound(value: float, low: float, high: float) -> Bound | None:
    """Return the bound of a one-sided interval, whose other end is 0 or the highest possible value."""
    if low <= 0.0:
        return "upper"
    return "lower" if math.isclose(high, value, abs_tol=1e-9) else None


def accuracy_interval(right: int, count: int) -> Ends:
    """Return `share_interval` of the correct predictions."""
    low, high = share_interval(torch.tensor(right), torch.tensor(count))
    return low.item(), high.item()


def class_sums(inputs: Inputs, statistics: BinStatistics, generator: torch.Generator | None) -> tuple[Tensor, int]:
    """Residuals of each row in the bins of all classes that hold samples, summed over groups of rows: ``(G, C)``.

    A row is in one bin of every class. With a generator, residuals are drawn, normal with the covariance of one draw
    from the row's probabilities; without, they are outcome minus probability. Of many rows some are taken: how many is
    returned too.
    """
    counts, num_bins = statistics.counts.flatten(), statistics.num_bins
    held = counts.nonzero().squeeze(1)
    place = torch.zeros_like(counts).index_copy_(0, held, torch.arange(len(held), device=held.device))
    groups, rows = min(ROW_GROUPS, len(inputs.targets)), 0
    sums = torch.zeros(groups, len(held), device=counts.device)
    classes = torch.arange(inputs.num_classes, device=counts.device)
    step = max(1, len(inputs.targets) // NOISE_ROWS)
    some = replace(inputs, scores=inputs.scores[::step], targets=inputs.targets[::step])
    for scores, targets in some.chunks(temporaries=8):
        probs = inputs.to_probs(scores)
        index = place[equal_width_index(probs.reshape(-1), num_bins).view_as(probs) + classes * num_bins]
        group = (torch.arange(rows, rows + len(probs), device=counts.device) % groups).unsqueeze(1)
        rows += len(probs)
        if generator is None:
            residuals = (targets.unsqueeze(1) == classes).float() - probs.float()
        else:
            normal = torch.randn(probs.shape, generator=generator, device=counts.device)
            scaled = probs.float().sqrt() * normal
            residuals = scaled - probs.float() * scaled.sum(dim=1, keepdim=True)
        sums.view(-1).index_add_(0, (group * len(held) + index).view(-1), residuals.reshape(-1))
    return sums, rows


def held_bins(statistics: BinStatistics) -> BinStatistics:
    """Return the non-empty bins of ``(K, M)`` as one set of bins."""
    counts = statistics.counts.flatten()
    held = counts > 0
    right, units = statistics.correct_sums.flatten(), statistics.confidence_units.flatten()
    return BinStatistics(counts[held], right[held], units[held], statistics.edges)


def class_cells(
    inputs: Inputs, statistics: BinStatistics, num_resamples: int, seed: int = 0
) -> tuple[BinStatistics, Tensor]:
    """Return the non-empty bins of all classes as one set, whose error is the classwise one, and their noise.

    A row that is wrong moves a bin of every class at once, so the bins do not scatter independently: the noise is the
    sums of `class_sums` with random normal weights, scaled to a variance of 1.
    """
    generator = torch.Generator(device=statistics.counts.device).manual_seed(seed)
    sums, _ = class_sums(inputs, statistics, generator)
    weights = torch.randn(num_resamples, len(sums), generator=generator, device=sums.device)
    noise = weights @ (sums / sums.norm(dim=0).clamp(min=torch.finfo(sums.dtype).tiny))
    return held_bins(statistics), noise


def reflected_kernel(cells: int, bandwidth: float, device: torch.device) -> Tensor:
    """Gaussian smoothing ``(cells, cells)`` of values over [0, 1], reflected at both ends; its rows sum to 1."""
    centres = (torch.arange(cells, dtype=torch.float64, device=device) + 0.5) / cells
    images = torch.stack((centres, -centres, 2.0 - centres))
    distances = (images.unsqueeze(1) - centres.view(1, -1, 1)) / max(bandwidth, 0.1 / cells)
    kernel = torch.exp(-0.5 * distances.square()).sum(dim=0)
    return kernel / kernel.sum(dim=1, keepdim=True)


def confidence_verdict(statistics: BinStatistics) -> str:
    """One sentence: over-confident, under-confident, or neither, if chance explains confidence minus accuracy.

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> confidence_verdict(equal_width_statistics(torch.full((1000,), 0.9), torch.arange(1000) < 800))
        'Over-confident: it says 90.0 % and is right 80.0 % of the time.'
    """
    count = int(statistics.total)
    accuracy = int(statistics.correct_sums.sum()) / count
    confidence = float(statistics.confidence_sums.sum()) / count
    says = f"it says {confidence:.1%} and is right {accuracy:.1%} of the time".replace("%", " %")
    if abs(confidence - accuracy) <= LARGE * math.sqrt(max(confidence * (1.0 - confidence), 0.0) / count):
        return f"Neither over- nor under-confident on average: {says}, which chance explains."
    return f"{'Over' if confidence > accuracy else 'Under'}-confident: {says}."


def finite(value: float) -> float | None:
    """Return a number that JSON can represent; None for others."""
    return value if math.isfinite(value) else None


def data_frame(rows: list[list[float]], index: list[str], columns: list[str]) -> "DataFrame":
    """Return a pandas DataFrame; pandas is not required otherwise."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        raise MissingExtraError("`pandas` must be installed for this: pip install pandas") from None
    return DataFrame(rows, index=index, columns=columns)
