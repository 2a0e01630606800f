"""95 % intervals of figures: Wilson's for accuracy, Hall's for mean losses, test inversion for calibration errors."""

import math
from typing import Literal

import torch
from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.functional.binning import BinStatistics, equal_width_index, equal_width_statistics
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.equal_mass import equal_mass_statistics
from metacal.functional.error_interval import error_interval
from metacal.functional.inputs import Inputs
from metacal.functional.mean_interval import mean_interval, power_sums
from metacal.functional.share_interval import share_interval
from metacal.functional.sweep_calibration_error import sweep_statistics

RESAMPLES = 1000
SMOOTH_CELLS = 128
"""Cells of confidence over which the smooth error is drawn."""

ROW_GROUPS = 1024
"""Groups of rows whose residuals are drawn together."""

HIGHEST_BRIER = 2.0
Ends = tuple[float, float]
Bound = Literal["upper", "lower"]


def figure_intervals(
    predictions: Predictions, smooth_ece: float, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Ends]:
    """95 % intervals of the figures of `score_predictions`, by name.

    Args:
        predictions: what was measured.
        smooth_ece: the figure, which is the bandwidth of the smooth error.
        num_bins: M.
        num_resamples: data sets drawn for the interval of a calibration error.
        seed: of the draws.
    """
    probs, targets, inputs = predictions.probs, predictions.targets, predictions.inputs
    confidences, correct = confidence_and_correctness(inputs)
    at_target = probs.gather(1, targets.unsqueeze(1)).squeeze(1).double()
    squares = probs.double().square().sum(dim=1) - at_target.square() + (1.0 - at_target).square()
    equal_width = equal_width_statistics(confidences, correct, num_bins)
    equal_mass = equal_mass_statistics(confidences, correct, num_bins)
    cells, cell_noise = class_cells(inputs, num_bins, num_resamples, seed)
    kernel = reflected_kernel(SMOOTH_CELLS, smooth_ece, probs.device)

    def ends(
        statistics: BinStatistics, norm: str = "l1", smoothing: Tensor | None = None, noise: Tensor | None = None
    ) -> Ends:
        interval = error_interval(
            statistics, norm, smoothing=smoothing, noise=noise, num_resamples=num_resamples, seed=seed
        )
        return interval.low.item(), interval.high.item()

    return {
        "accuracy": accuracy_interval(int(correct.sum()), len(correct)),
        "nll": mean_interval(len(targets), power_sums(_losses(predictions))),
        "brier": mean_interval(len(targets), power_sums(squares), HIGHEST_BRIER),
        "ece": ends(equal_width),
        "mce": ends(equal_width, "max"),
        "adaptive_ece": ends(equal_mass),
        "classwise_ece": ends(cells, noise=cell_noise),
        "debiased_ece": ends(equal_mass, "l2"),
        "sweep_ece": ends(sweep_statistics(confidences, correct)),
        "smooth_ece": ends(equal_width_statistics(confidences, correct, SMOOTH_CELLS), smoothing=kernel),
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


def class_cells(inputs: Inputs, num_bins: int, num_resamples: int, seed: int = 0) -> tuple[BinStatistics, Tensor]:
    """The bins of all classes that hold samples as one set of bins, whose error is the classwise one, and their noise.

    A row that is wrong moves a bin of every class at once, so the bins do not scatter independently. The residuals of
    each row are drawn, normal with the covariance of one draw from its probabilities, and added up over groups of
    rows; the groups' sums with random normal weights are the noise, scaled to a variance of 1.
    """
    statistics = class_statistics(inputs, num_bins)
    counts = statistics.counts.flatten()
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


def _losses(predictions: Predictions) -> Tensor:
    """-log p(target) of each row, float64; finite for logits however large."""
    rows = predictions.targets.unsqueeze(1)
    if predictions.is_logits:
        return -torch.log_softmax(predictions.scores.double(), dim=1).gather(1, rows).squeeze(1)
    return -predictions.scores.double().gather(1, rows).squeeze(1).clamp(max=1.0).log()
