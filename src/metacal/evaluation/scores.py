"""The figures that say how good and how calibrated predictions are, and their 95 % intervals.

Intervals: Wilson's for accuracy, Hall's for mean losses, test inversion for calibration errors.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from metacal.errors import MissingExtraError
from metacal.evaluation.binary import average_precision, roc_auc
from metacal.functional.binning import (
    BinStatistics,
    calibration_error,
    confidence_and_correctness,
    equal_mass_statistics,
    equal_width_index,
    equal_width_statistics,
)
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import class_statistics, debiased_error, smooth_error, sweep_statistics
from metacal.functional.inputs import Inputs, at_least_float32, read_inputs
from metacal.functional.intervals import error_interval, mean_interval, power_sums, share_interval
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
    ece = error_interval(binned.equal_width, seed=seed)
    return Scores(**binned.figures(), ece_low=ece.low.item(), ece_high=ece.high.item())


def figures_with_intervals(
    predictions: "Predictions", *, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, float]:
    """Figures of `Scores` by name, with ``x_low`` and ``x_high`` of every x; arguments as in `evaluate_file`."""
    checked = replace(predictions.inputs, validate=True)
    return Binned.of(checked, num_bins).with_intervals(num_resamples, seed)


@dataclass(frozen=True)
class TopLabel:
    """Confidences in the predicted classes, in bins: what top-label figures and intervals are computed from, once.

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
        return cls(
            confidences,
            correct,
            equal_width=equal_width_statistics(confidences, correct, num_bins),
            equal_mass=equal_mass_statistics(confidences, correct, num_bins),
            sweep=sweep_statistics(confidences, correct),
        )

    def take(self, rows: Tensor) -> "TopLabel":
        """Some of the rows, by a mask."""
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
        """95 % intervals of the figures by name; ``smooth_ece`` is the figure, and the bandwidth of its kernel."""
        kernel = reflected_kernel(SMOOTH_CELLS, smooth_ece, self.confidences.device)
        smooth = equal_width_statistics(self.confidences, self.correct, SMOOTH_CELLS)
        interval = partial(error_interval, num_resamples=num_resamples, seed=seed)
        errors = {
            "ece": interval(self.equal_width),
            "mce": interval(self.equal_width, "max"),
            "adaptive_ece": interval(self.equal_mass),
            "debiased_ece_l2": interval(self.equal_mass, "l2"),
            "sweep_ece": interval(self.sweep),
            "smooth_ece": interval(smooth, smoothing=kernel),
        }
        ends = {name: (error.low.item(), error.high.item()) for name, error in errors.items()}
        return {"accuracy": accuracy_interval(int(self.correct.sum()), len(self.correct)), **ends}

    def with_intervals(self, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, float]:
        """Figures by name, with the ends of all intervals."""
        figures = self.figures()
        return figures | by_end(self.intervals(figures["smooth_ece"], num_resamples, seed))


@dataclass(frozen=True)
class Binned(TopLabel):
    """Predictions of all classes, in bins too.

    Attributes:
        inputs: scores ``(n, K)`` and targets.
        classes: each class against the rest, ``(K, M)``.
    """

    inputs: Inputs
    classes: BinStatistics

    @classmethod
    def of(cls, inputs: Inputs, num_bins: int) -> "Binned":
        """Bin the rows; values are checked if the inputs are to be."""
        confidences, correct = confidence_and_correctness(inputs)
        inputs = replace(inputs, validate=False)  # reading the confidences has checked every value
        top = TopLabel.of_confidences(confidences, correct, num_bins)
        return cls(**vars(top), inputs=inputs, classes=class_statistics(inputs, num_bins))

    @property
    def positive(self) -> Tensor:
        """Probabilities of class 1, ``(n,)``, in float32 or wider."""
        return self.inputs.to_probs(at_least_float32(self.inputs.scores))[:, 1]

    def take(self, rows: Tensor) -> "Binned":
        """See `TopLabel`."""
        some = replace(self.inputs, scores=self.inputs.scores[rows], targets=self.inputs.targets[rows])
        return Binned.of(some, self.equal_width.num_bins)

    def figures(self) -> dict[str, float]:
        """The figures of `Scores` but for the interval, by name."""
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
        """See `TopLabel`; those of NLL, Brier score and classwise error too."""
        losses, distances = self.losses_and_distances()
        cells, cell_noise = class_cells(self.inputs, self.classes, num_resamples, seed)
        classwise = error_interval(cells, noise=cell_noise, num_resamples=num_resamples, seed=seed)
        return super().intervals(smooth_ece, num_resamples, seed) | {
            "nll": mean_interval(len(losses), power_sums(losses)),
            "brier": mean_interval(len(distances), power_sums(distances), HIGHEST_BRIER),
            "classwise_ece": (classwise.low.item(), classwise.high.item()),
        }

    def with_intervals(self, num_resamples: int = RESAMPLES, seed: int = 0) -> dict[str, float]:
        """See `TopLabel`; of a binary model, figures of the probability of class 1 too."""
        figures = super().with_intervals(num_resamples, seed)
        if self.inputs.num_classes != 2:
            return figures
        scores, is_positive = self.positive, self.inputs.targets == 1
        statistics = equal_width_statistics(scores, is_positive, self.equal_width.num_bins)
        ece = error_interval(statistics, num_resamples=num_resamples, seed=seed)
        area, low, high = roc_auc(scores, is_positive)
        return figures | {
            "positive_ece": ece.estimate.item(),
            "positive_ece_low": ece.low.item(),
            "positive_ece_high": ece.high.item(),
            "roc_auc": area,
            "roc_auc_low": low,
            "roc_auc_high": high,
            "average_precision": average_precision(scores, is_positive),
        }

    def losses_and_distances(self) -> tuple[Tensor, Tensor]:
        """-log p(target) and the squared distance of each row, float64; the first is finite for logits of any size."""
        rows = self.inputs.targets.unsqueeze(1)
        probs = self.inputs.to_probs(at_least_float32(self.inputs.scores)).double()
        at_target = probs.gather(1, rows).squeeze(1)
        distances = probs.square().sum(dim=1) - at_target.square() + (1.0 - at_target).square()
        if self.inputs.is_logits:
            return -torch.log_softmax(self.inputs.scores.double(), dim=1).gather(1, rows).squeeze(1), distances
        return -at_target.clamp(max=1.0).log(), distances


def by_end(intervals: dict[str, Ends]) -> dict[str, float]:
    """``x_low`` and ``x_high`` of every x."""
    return {
        f"{name}_{end}": value
        for name, ends in intervals.items()
        for end, value in zip(("low", "high"), ends, strict=True)
    }


def only_bound(value: float, low: float, high: float) -> Bound | None:
    """Which bound a one-sided interval gives: the other end is 0, or a value that is as high as can be."""
    if low <= 0.0:
        return "upper"
    return "lower" if math.isclose(high, value, abs_tol=1e-9) else None


def accuracy_interval(right: int, count: int) -> Ends:
    """`share_interval` of the right answers."""
    low, high = share_interval(torch.tensor(right), torch.tensor(count))
    return low.item(), high.item()


def class_cells(
    inputs: Inputs, statistics: BinStatistics, num_resamples: int, seed: int = 0
) -> tuple[BinStatistics, Tensor]:
    """The bins of all classes that hold samples as one set of bins, whose error is the classwise one, and their noise.

    A row that is wrong moves a bin of every class at once, so the bins do not scatter independently. The residuals of
    each row are drawn, normal with the covariance of one draw from its probabilities, and added up over groups of
    rows; the groups' sums with random normal weights are the noise, scaled to a variance of 1.
    """
    counts, num_bins = statistics.counts.flatten(), statistics.counts.shape[1]
    held = counts.nonzero().squeeze(1)
    place = torch.zeros_like(counts).index_copy_(0, held, torch.arange(len(held), device=held.device))
    generator = torch.Generator(device=counts.device).manual_seed(seed)
    groups, rows = min(ROW_GROUPS, len(inputs.targets)), 0
    sums = torch.zeros(groups, len(held), device=counts.device)
    classes = torch.arange(inputs.num_classes, device=counts.device) * num_bins
    for scores, _ in inputs.chunks(temporaries=8):
        probs = inputs.to_probs(scores)
        index = place[equal_width_index(probs.reshape(-1), num_bins).view_as(probs) + classes]
        group = (torch.arange(rows, rows + len(probs), device=counts.device) % groups).unsqueeze(1)
        rows += len(probs)
        normal = torch.randn(probs.shape, generator=generator, device=counts.device)
        scaled = probs.float().sqrt() * normal
        residuals = scaled - probs.float() * scaled.sum(dim=1, keepdim=True)
        sums.view(-1).index_add_(0, (group * len(held) + index).view(-1), residuals.view(-1))
    weights = torch.randn(num_resamples, groups, generator=generator, device=counts.device)
    noise = weights @ (sums / sums.norm(dim=0).clamp(min=torch.finfo(sums.dtype).tiny))
    correct_sums, units = statistics.correct_sums.flatten(), statistics.confidence_units.flatten()
    return BinStatistics(counts[held], correct_sums[held], units[held], statistics.edges), noise


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
    """A number that JSON has; None of any other."""
    return value if math.isfinite(value) else None


def data_frame(rows: list[list[float]], index: list[str], columns: list[str]) -> "DataFrame":
    """A table for pandas users; pandas is not required otherwise."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        raise MissingExtraError("`pandas` must be installed for this: pip install pandas") from None
    return DataFrame(rows, index=index, columns=columns)
