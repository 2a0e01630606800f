"""Static figures of predictions: each ``plot_*`` draws the numbers of the corresponding ``prepare_*``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from metacal.evaluation.predictions import Predictions
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import bin_statistics, confidence_statistics
from metacal.functional.inputs import ScoreArguments
from metacal.reporting.mistakes import RiskCoverageCurve
from metacal.reporting.reliability import Bins, PositiveClass, Reliability, to_bins
from metacal.reporting.style import (
    BAR,
    BLUE,
    COUNT,
    INK,
    OVER,
    OVER_FILL,
    SERIES,
    UNDER,
    UNDER_FILL,
    draw_diagonal,
    house_style,
    in_percent,
    new_axis,
    new_figure,
    short,
)
from metacal.reporting.summary import Comparison, GroupPart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW, FAINT = 10, 0.3
"""A bin of fewer samples says little, and is drawn faint."""

OVER_GAP = ("over-confident", OVER, OVER_FILL, "////")
UNDER_GAP = ("under-confident", UNDER, UNDER_FILL, "\\\\\\\\")


@public
def reliability_diagram(
    *, num_bins: int = 15, ax: Axes | None = None, title: str = "", **scores: Unpack[ScoreArguments]
) -> Axes:
    """Draw accuracy over confidence with its 95 % intervals; the gap to confidence is hatched.

    Args and errors as in `metacal.functional.expected_calibration_error`, and:

    Args:
        num_bins: M.
        ax: matplotlib axes to draw into; by default those of a new figure.
        title: stands before the ECE above the diagram.
    """
    statistics = bin_statistics(num_bins=num_bins, **scores)
    bins = to_bins(statistics)
    with house_style():
        axis = new_axis(5.0, 4.8)[1] if ax is None else ax
        draw_bins(axis, statistics.edges.tolist(), bins)
        label_axes(axis)
        axis.set_title(f"{title}: {ece_in_words(bins)}".removeprefix(": "), parse_math=False)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(loc="upper left")
    return axis


def reliability_curves(models: Sequence[Predictions], num_bins: int = 15, ax: Axes | None = None) -> Axes:
    """Draw accuracy over confidence, a line for each model."""
    with house_style():
        axis = new_axis(5.0, 4.8)[1] if ax is None else ax
        draw_curves(axis, [(model.name, to_bins(confidence_statistics(model.inputs, num_bins))) for model in models])
    return axis


def plot_reliability(reliability: Reliability) -> Figure:
    """Plot reliability diagrams as given and at the temperature of best likelihood, with sample shares."""
    step = reliability.fitted_step
    scaled = {f"At temperature {reliability.temperatures[step]:.1f}": reliability.scaled[step]}
    return plot_diagrams(reliability.edges, {"As given": reliability.given, **scaled})


def plot_positive(positive: PositiveClass) -> Figure:
    """Plot the reliability diagram of a binary model's class 1."""
    return plot_diagrams(positive.edges, {short(positive.name): positive.bins}, "Probability", "Frequency")


def plot_diagrams(
    edges: Sequence[float], diagrams: Mapping[str, Bins], scale: str = "Confidence", share: str = "Accuracy"
) -> Figure:
    """Plot reliability diagrams side by side by title, with sample shares below."""
    figure = new_figure(4.0 * len(diagrams), 5.2)
    axes = figure.subplots(2, len(diagrams), sharex=True, height_ratios=(4, 1), squeeze=False)
    for (upper, lower), (title, bins) in zip(axes.T, diagrams.items(), strict=True):
        draw_diagram(upper, lower, edges, bins)
        label_axes(upper, "", share)
        upper.set_title(f"{title}: {ece_in_words(bins)}")
        lower.set(xlabel=scale, ylabel="Samples")
    return figure


def plot_risk_coverage(curves: Sequence[tuple[str, RiskCoverageCurve]]) -> Figure:
    """Plot risk against coverage, a line for each name."""
    figure, axis = new_axis(6.0, 3.6)
    for number, (name, curve) in enumerate(curves):
        colour, line = SERIES[number % len(SERIES)]
        axis.plot(curve.coverages, curve.risks, color=colour, linestyle=line, label=short(name, 40))
    if len(curves) > 1:
        axis.legend()
    axis.set(title="Risk and coverage", xlabel="Share answered", ylabel="Share wrong", xlim=(0, 1), ylim=(0, None))
    in_percent(axis)
    in_percent(axis, "x")
    return figure


def plot_compared_reliability(named: Sequence[tuple[str, Reliability]]) -> Figure:
    """Plot accuracy against confidence, a line for each name."""
    figure, axis = new_axis(5.0, 4.8)
    draw_curves(axis, [(name, reliability.given) for name, reliability in named])
    return figure


def plot_errors(compared: Comparison | GroupPart) -> Figure:
    """Plot the ECE of each model or group with its interval."""
    names = [short(name, 40) for name in compared.names]
    figure, axis = new_axis(6.0, 1.2 + 0.35 * len(names))
    score = next(score for score in compared.scores if score.key == "ece")
    for place, value in enumerate(score.values):
        if value is None:
            continue
        colour = SERIES[place % len(SERIES)][0]
        low, high = score.lows[place], score.highs[place]
        if low is not None and high is not None:
            axis.plot((low, high), (place, place), color=colour, alpha=0.5, linewidth=3, solid_capstyle="butt")
        axis.plot(value, place, color=colour, marker="o")
    axis.set_yticks(range(len(names)), names)
    axis.set(title="Expected calibration error", xlabel="ECE", xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    in_percent(axis, "x")
    return figure


def draw_curves(axis: Axes, named: Sequence[tuple[str, Bins]]) -> None:
    """Draw accuracy by confidence, a line for each name; faint for bins with few samples."""
    draw_diagonal(axis)
    for number, (name, bins) in enumerate(named):
        colour, line = SERIES[number % len(SERIES)]
        held = zip(bins.confidences, bins.accuracies, bins.counts, strict=True)
        points = [(x, y, FAINT if count < FEW else 1.0) for x, y, count in held if x is not None and y is not None]
        for (left, low, alpha), (right, high, other) in pairwise(points):
            axis.plot((left, right), (low, high), color=colour, linestyle=line, alpha=min(alpha, other))
        for x, y, alpha in points:
            axis.plot(x, y, color=colour, marker="o", ms=3.5, alpha=alpha)
        axis.plot((), (), color=colour, linestyle=line, marker="o", ms=3.5, label=short(name, 40))
    axis.legend()
    label_axes(axis)
    axis.set(title="Reliability", xlim=(0, 1), ylim=(0, 1))


def label_axes(axis: Axes, scale: str = "Confidence", share: str = "Accuracy") -> None:
    """Name the axes of a reliability diagram; they are in percent."""
    axis.set(xlabel=scale, ylabel=share)
    in_percent(axis)
    in_percent(axis, "x")


def ece_in_words(bins: Bins) -> str:
    """Return the ECE for the title of a diagram."""
    return f"ECE {(bins.ece or 0.0) * 100:.2f} %"


def draw_diagram(upper: Axes, lower: Axes, edges: Sequence[float], bins: Bins) -> None:
    """Draw a reliability diagram above, and the share of samples in each bin below."""
    draw_bins(upper, edges, bins)
    total = sum(bins.counts)
    shares = [count / total for count in bins.counts]
    lower.bar(edges[:-1], shares, 0.94 * (edges[1] - edges[0]), align="edge", color=COUNT)
    lower.set(xlim=(0.0, 1.0), xlabel="Confidence")
    in_percent(lower)


def draw_bins(axis: Axes, edges: Sequence[float], bins: Bins) -> None:
    """Draw bars of accuracy, the hatched gap to confidence, and intervals; faint for bins with few samples."""
    width = 0.94 * (edges[1] - edges[0])
    columns = zip(edges, bins.counts, bins.accuracies, bins.confidences, bins.lows, bins.highs, strict=False)
    for left, count, accuracy, confidence, low, high in columns:
        if accuracy is None or confidence is None or low is None or high is None:
            continue
        alpha = FAINT if count < FEW else None
        label, edge, fill, hatch = OVER_GAP if confidence > accuracy else UNDER_GAP
        bar: dict[str, Any] = {"width": width, "align": "edge", "alpha": alpha}
        axis.bar(left, accuracy, color=BAR, **bar)
        known = axis.get_legend_handles_labels()[1]
        gap: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "hatch": hatch, "linewidth": 0.5}
        bottom, height = min(accuracy, confidence), abs(accuracy - confidence)
        axis.bar(left, height, bottom=bottom, label=None if label in known else label, **bar, **gap)
        axis.hlines(accuracy, left, left + width, color=BLUE, linewidth=1.6, alpha=alpha)
        # Where all are right or all wrong, an end of the interval is the share itself, but for rounding.
        ends = [[max(accuracy - low, 0.0)], [max(high - accuracy, 0.0)]]
        whisker: dict[str, Any] = {"color": INK, "capsize": 2.0, "linewidth": 0.9, "linestyle": "none", "alpha": alpha}
        axis.errorbar(left + width / 2, accuracy, ends, **whisker)
    draw_diagonal(axis)
    axis.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
