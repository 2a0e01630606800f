"""Bootstrap intervals of all figures at once: each resample is drawn once and every figure is read off it."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.functional.binning import (
    BinStatistics,
    accumulate,
    calibration_error,
    equal_width_edges,
    equal_width_index,
)
from metacal.functional.bootstrap import basic_interval, calibrated_bins
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.debiased_calibration_error import debiased_error
from metacal.functional.equal_mass import SortedSamples
from metacal.functional.share_interval import share_interval
from metacal.functional.smooth_calibration_error import smooth_error
from metacal.functional.sweep_calibration_error import sweep_sorted

RESAMPLES = 200
SMOOTH_BISECTIONS = 16
"""Enough for the spread of the smooth error: 1.5e-5."""

MOST_CELLS = 2**18
"""Probabilities, over all rows and classes, up to which classwise figures are resampled row by row."""

Figures = dict[str, float]


def figure_intervals(
    predictions: Predictions,
    figures: Mapping[str, float],
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """95 % intervals of the figures of `score_predictions`, by name (ECE has its own, in `Scores`).

    Rows are drawn with replacement; the interval is the basic one (see `_ends`). Classwise figures of very many
    probabilities are resampled from their bins, each class on its own.

    Args:
        predictions: what to measure.
        figures: what `score_predictions` found: the estimates that the intervals are around.
        num_bins: M.
        num_resamples: draws.
        seed: of the draws.
    """
    probs, targets = predictions.probs, predictions.targets
    confidences, correct = confidence_and_correctness(predictions.inputs)
    ordered, order = confidences.sort()
    right = correct[order]
    at_target = probs.gather(1, targets.unsqueeze(1)).squeeze(1).double()
    squares = probs.double().square().sum(dim=1) - at_target.square() + (1.0 - at_target).square()
    losses = _losses(predictions)[order], squares[order]
    classwise = _classwise(probs[order], targets[order], num_bins)
    generator = torch.Generator(device=probs.device).manual_seed(seed)

    edges = equal_width_edges(num_bins, probs.device)

    def of_confidences(confidences: Tensor, correct: Tensor) -> Figures:
        """Figures of confidences in ascending order."""
        samples = SortedSamples(confidences, correct, is_sorted=True)
        equal_mass = samples.statistics(num_bins)
        equal_width = accumulate(equal_width_index(confidences, num_bins), confidences, correct, edges)
        found = {
            "mce": calibration_error(equal_width, "max"),
            "adaptive_ece": calibration_error(equal_mass),
            "debiased_ece": debiased_error(equal_mass),
            "sweep_ece": calibration_error(sweep_sorted(samples)),
            "smooth_ece": smooth_error(confidences, correct, SMOOTH_BISECTIONS),
        }
        return {name: value.item() for name, value in found.items()}

    def of_rows(rows: Tensor) -> Figures:
        means = {"accuracy": right[rows].double(), "nll": losses[0][rows], "brier": losses[1][rows]}
        found = of_confidences(ordered[rows], right[rows]) | {name: v.mean().item() for name, v in means.items()}
        return found if classwise is None else found | {"classwise_ece": classwise(rows).item()}

    all_rows = torch.arange(len(targets), device=probs.device)
    draws, chances = [], []
    for _ in range(num_resamples):
        drawn = torch.randint(len(targets), targets.shape, generator=generator, device=probs.device)
        counts = torch.bincount(drawn, minlength=len(targets))
        draws.append(of_rows(torch.repeat_interleave(all_rows, counts)))
        luck = torch.rand(ordered.shape, dtype=ordered.dtype, generator=generator, device=probs.device) < ordered
        chances.append(of_confidences(ordered, luck))
    resampled = {name: (_column(draws, name), _column(chances, name)) for name in draws[0]}
    statistics = class_statistics(predictions.inputs, num_bins)
    values = calibration_error(resampled_bins(statistics, num_resamples, seed)).mean(dim=1)
    if classwise is not None:
        values = resampled["classwise_ece"][0]
    chance = calibration_error(calibrated_bins(statistics, num_resamples, seed)).mean(dim=1)
    resampled["classwise_ece"] = values, chance
    ends = {name: _ends(name, figures[name], *parts) for name, parts in resampled.items()}
    if bool(right.all()) or not bool(right.any()):  # resampling would give the accuracy a width of 0
        low, high = share_interval(right.sum(), torch.tensor(len(right)))
        ends["accuracy"] = low.item(), high.item()
    return ends


def streamed_interval(statistics: BinStatistics, norm: str = "l1", seed: int = 0) -> tuple[float, float]:
    """95 % interval of an error over bins of very many samples: the bins' counts are drawn again, not the rows."""
    draws = (resampled_bins(statistics, 1000, seed), calibrated_bins(statistics, 1000, seed))
    values, chance = (calibration_error(drawn, norm) for drawn in draws)
    return _ends("ece", calibration_error(statistics, norm).item(), values, chance)


def resampled_bins(statistics: BinStatistics, num_resamples: int, seed: int = 0) -> BinStatistics:
    """Counts and right answers of each set of bins drawn again, ``(R, ..., M)``; mean confidences stay."""
    generator = np.random.default_rng(seed)
    shares, totals = statistics.weights.cpu().numpy(), statistics.total.cpu().numpy()
    shares = shares / shares.sum(axis=-1, keepdims=True)
    counts = generator.multinomial(totals, shares, size=(num_resamples, *totals.shape))
    right = generator.binomial(counts, statistics.accuracies.clamp(0.0, 1.0).cpu().numpy())
    means = (statistics.confidence_units.double() / statistics.counts.clamp(min=1)).cpu()
    drawn = torch.from_numpy(counts)
    return BinStatistics(drawn, torch.from_numpy(right), (drawn * means).round().long(), statistics.edges.cpu())


def _losses(predictions: Predictions) -> Tensor:
    """-log p(target) of each row, float64; finite for logits however large."""
    rows = predictions.targets.unsqueeze(1)
    if predictions.is_logits:
        return -torch.log_softmax(predictions.scores.double(), dim=1).gather(1, rows).squeeze(1)
    return -predictions.scores.double().gather(1, rows).squeeze(1).clamp(max=1.0).log()


def _classwise(probs: Tensor, targets: Tensor, num_bins: int) -> Callable[[Tensor], Tensor] | None:
    """Classwise ECE as a function of row numbers, or None where that would take too long."""
    if probs.numel() > MOST_CELLS:
        return None
    num_classes = probs.shape[1]
    edges = equal_width_edges(num_bins, probs.device)
    classes = torch.arange(num_classes, device=probs.device)
    index = equal_width_index(probs.reshape(-1), num_bins).view_as(probs) + classes * num_bins
    came = targets.unsqueeze(1) == classes

    def measure(rows: Tensor) -> Tensor:
        places, values, outcomes = (array[rows].reshape(-1) for array in (index, probs, came))
        return calibration_error(accumulate(places, values, outcomes, edges, num_classes)).mean()

    return measure


def _column(figures: list[Figures], name: str) -> Tensor:
    """One figure over all draws; empty if they do not have it."""
    return torch.tensor([figure[name] for figure in figures if name in figure], dtype=torch.float64)


def _ends(name: str, estimate: float, values: Tensor, chance: Tensor) -> tuple[float, float]:
    """Ends of the basic interval, within the figure's domain.

    It reaches down to 0 if chance alone gives a calibrated model as high an error. What has its bias taken out and is
    then cut at 0 has no spread to turn over at 0: its upper end is no less than the quantile of the resamples.
    """
    interval = basic_interval(torch.tensor(estimate, dtype=torch.float64), values)
    if name == "debiased_ece":
        interval = interval._replace(high=torch.maximum(interval.high, values.quantile(0.975)))
    interval = interval.within(0.0, math.inf if name in ("nll", "brier") else 1.0)
    is_chance = len(chance) > 0 and bool(estimate <= chance.quantile(0.975))
    return 0.0 if is_chance else interval.low.item(), interval.high.item()
