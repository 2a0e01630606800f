"""Numbers of reliability diagrams: as given, at each temperature of a grid, and by predicted class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metacal.evaluation.decisions import Threshold
from metacal.evaluation.predictions import Predictions
from metacal.functional.binning import (
    BinStatistics,
    accumulate,
    calibration_error,
    confidence_and_correctness,
    equal_width_edges,
    equal_width_index,
    equal_width_statistics,
    noise_floor,
)
from metacal.functional.calibration_errors import bin_statistics, class_statistics
from metacal.functional.intervals import share_interval
from metacal.functional.temperature import GRID, fit_temperature, scan_temperatures

MOST_SHOWN = 200
"""Classes that get a diagram of their own."""


@dataclass(frozen=True)
class Bins:
    """One reliability diagram: a value per bin, None if a bin is empty."""

    counts: list[int]
    confidences: list[float | None]
    accuracies: list[float | None]
    lows: list[float | None]  # ends of the accuracy's 95 % interval (see `share_interval`)
    highs: list[float | None]
    ece: float | None  # over these bins; None without samples
    chance: float  # the ECE that chance alone would give a perfectly calibrated model (see `noise_floor`)


@dataclass(frozen=True)
class Reliability:
    """Reliability as given, and at each temperature of the grid."""

    edges: list[float]
    given: Bins
    temperatures: list[float]
    scaled: list[Bins]
    nll: list[float]
    fitted: float | None  # the temperature with the best likelihood on these samples; None where it lies at a bound
    fitted_step: int  # the place in the grid nearest to it: where the slider starts
    best_step: int  # the place in the grid with the least ECE, the first of equals


@dataclass(frozen=True)
class ClassReliability:
    """Reliability of one class; None if it is never predicted, or never occurs."""

    name: str
    support: int  # samples of this class
    predicted: int  # samples that the model takes for this class
    accuracy: float | None  # share of these that are right (precision)
    confidence: float | None  # mean confidence in these
    recall: float | None
    classwise_ece: float  # of this class's probability over all samples, one against the rest
    ece: float | None  # of the samples that the model takes for this class
    bins: Bins | None  # their reliability diagram; None for classes that are not among the `MOST_SHOWN` worst


@dataclass(frozen=True)
class Classes:
    """All classes in order, and the predicted classes by calibration error, largest first."""

    edges: list[float]
    rows: list[ClassReliability]
    worst_first: list[int]


@dataclass(frozen=True)
class PositiveClass:
    """Class 1 of a binary model: its reliability and a table of thresholds."""

    name: str
    edges: list[float]
    bins: Bins  # "accuracy" is how often it occurs
    thresholds: list[dict[str, Any]]  # see `metacal.evaluation.Threshold`


def prepare_reliability(predictions: Predictions, num_bins: int = 15) -> Reliability:
    """Bin the confidences as given and at every temperature of `GRID`.

    Examples:
        >>> said = Predictions.from_logits(torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]))
        >>> reliability = prepare_reliability(said)
        >>> round(reliability.given.ece, 3), round(reliability.fitted, 2)
        (0.232, 3.64)
    """
    targets, logits = predictions.targets, predictions.logits
    given = bin_statistics(
        logits=logits if predictions.is_logits else None,
        probs=None if predictions.is_logits else predictions.probs,
        targets=targets,
        num_bins=num_bins,
        validate=False,
    )
    scan = scan_temperatures(logits, targets, num_bins, validate=False)
    scaled = [to_bins(row) for row in rows_of(scan.statistics)]
    fit = fit_temperature(logits=logits, targets=targets, validate=False)
    errors = [bins.ece or 0.0 for bins in scaled]
    return Reliability(
        edges=given.edges.tolist(),
        given=to_bins(given),
        temperatures=list(GRID),
        scaled=scaled,
        nll=scan.nll.tolist(),
        fitted=None if fit.at_bound else fit.temperature,
        fitted_step=min(range(len(GRID)), key=lambda step: abs(GRID[step] - fit.temperature)),
        best_step=errors.index(min(errors)),
    )


def prepare_positive(predictions: Predictions, thresholds: Sequence[Threshold], num_bins: int = 15) -> PositiveClass:
    """Bin the probability of class 1 of a binary model."""
    statistics = equal_width_statistics(predictions.probs[:, 1], predictions.targets == 1, num_bins)
    rows = [threshold._asdict() for threshold in thresholds]
    return PositiveClass(predictions.class_names[1], statistics.edges.tolist(), to_bins(statistics), rows)


def prepare_classes(predictions: Predictions, num_bins: int = 10) -> Classes:
    """Reliability of each class among the samples predicted as it, with the worst singled out."""
    targets, size = predictions.targets, predictions.num_classes
    confidences, correct = confidence_and_correctness(predictions.inputs)
    index = equal_width_index(confidences, num_bins) + predictions.predicted * num_bins
    statistics = accumulate(index, confidences, correct, equal_width_edges(num_bins, targets.device), size)
    support = torch.bincount(targets, minlength=size).tolist()
    errors = calibration_error(class_statistics(predictions.inputs, 15)).tolist()
    own = rows_of(statistics)
    own_errors = finite(calibration_error(statistics).tolist())
    predicted_classes = (number for number, error in enumerate(own_errors) if error is not None)
    worst_first = sorted(predicted_classes, key=lambda number: -(own_errors[number] or 0.0))[:MOST_SHOWN]
    shown = set(worst_first)
    rows = []
    for number, name in enumerate(predictions.class_names):
        count, right = int(own[number].total), int(own[number].correct_sums.sum())
        rows.append(
            ClassReliability(
                name=name,
                support=support[number],
                predicted=count,
                accuracy=right / count if count else None,
                confidence=float(own[number].confidence_sums.sum()) / count if count else None,
                recall=right / support[number] if support[number] else None,
                classwise_ece=errors[number],
                ece=own_errors[number],
                bins=to_bins(own[number]) if number in shown else None,
            )
        )
    return Classes(statistics.edges.tolist(), rows, worst_first)


def to_bins(statistics: BinStatistics) -> Bins:
    """Return the numbers of one diagram from bin statistics."""
    lows, highs = share_interval(statistics.correct_sums, statistics.counts)
    held = statistics.counts > 0
    return Bins(
        counts=statistics.counts.tolist(),
        confidences=_where(held, statistics.confidences),
        accuracies=_where(held, statistics.accuracies),
        lows=_where(held, lows),
        highs=_where(held, highs),
        ece=float(calibration_error(statistics)) if bool(held.any()) else None,
        chance=float(noise_floor(statistics)),
    )


def rows_of(statistics: BinStatistics) -> list[BinStatistics]:
    """Yield the rows of statistics ``(R, M)``."""
    columns = (statistics.counts, statistics.correct_sums, statistics.confidence_units)
    return [BinStatistics(*row, statistics.edges) for row in zip(*columns, strict=True)]


def finite(values: Sequence[float]) -> list[float | None]:
    """Replace values that are not finite by None, for JSON."""
    return [float(value) if math.isfinite(value) else None for value in values]


def _where(held: Tensor, values: Tensor) -> list[float | None]:
    return [value if is_held else None for value, is_held in zip(values.tolist(), held.tolist(), strict=True)]
