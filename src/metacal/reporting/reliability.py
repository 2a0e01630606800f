"""Numbers of the reliability diagram: what each bin of confidence holds, as given and at each temperature of a grid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.functional.binning import BinStatistics, calibration_error
from metacal.functional.expected_calibration_error import bin_statistics, noise_floor
from metacal.functional.intervals import share_interval
from metacal.functional.temperature import fit_temperature
from metacal.functional.temperature_recipes import GRID, scan_temperatures


@dataclass(frozen=True)
class Bins:
    """One reliability diagram: a value a bin, None where a bin is empty.

    Attributes:
        counts: samples.
        confidences: their mean confidence.
        accuracies: the share of them that was right.
        lows: lower end of the accuracy's 95 % interval (see `share_interval`).
        highs: upper end of it.
        ece: expected calibration error over these bins; None without samples.
        chance: the ECE that chance alone would give a perfectly calibrated model (see `noise_floor`).
    """

    counts: list[int]
    confidences: list[float | None]
    accuracies: list[float | None]
    lows: list[float | None]
    highs: list[float | None]
    ece: float | None
    chance: float


@dataclass(frozen=True)
class Reliability:
    """Reliability as given, and at each temperature of the grid.

    Attributes:
        edges: M + 1 edges of the bins.
        given: the diagram of the predictions as they are.
        temperatures: the grid.
        scaled: a diagram for each temperature.
        nll: mean negative log-likelihood at each temperature, nats.
        fitted: the temperature with the best likelihood on these very samples; None where it lies at a bound.
        fitted_step: the place in the grid nearest to it: where the slider starts.
        best_step: the place in the grid with the least ECE, the first of equals.
    """

    edges: list[float]
    given: Bins
    temperatures: list[float]
    scaled: list[Bins]
    nll: list[float]
    fitted: float | None
    fitted_step: int
    best_step: int


def prepare_reliability(predictions: Predictions, num_bins: int = 15) -> Reliability:
    """Bin the confidences as given and at every temperature of `GRID`.

    Examples:
        >>> import torch
        >>> said = Predictions.from_logits(torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]))
        >>> reliability = prepare_reliability(said)
        >>> round(reliability.given.ece, 3), round(reliability.fitted, 2)
        (0.232, 3.64)
        >>> reliability.temperatures[reliability.best_step]
        3.6
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


def to_bins(statistics: BinStatistics) -> Bins:
    """One diagram's numbers from one set of bin statistics."""
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
    """The rows of statistics ``(R, M)``, one by one."""
    columns = (statistics.counts, statistics.correct_sums, statistics.confidence_units)
    return [BinStatistics(*row, statistics.edges) for row in zip(*columns, strict=True)]


def finite(values: Sequence[float]) -> list[float | None]:
    """Values with None for what is not finite, as JSON has it."""
    return [float(value) if math.isfinite(value) else None for value in values]


def _where(held: Tensor, values: Tensor) -> list[float | None]:
    return [value if is_held else None for value, is_held in zip(values.tolist(), held.tolist(), strict=True)]
