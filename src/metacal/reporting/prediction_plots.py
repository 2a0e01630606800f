"""Static figures of predictions: each ``plot_*`` draws what the ``prepare_*`` of the same thing has worked out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from metacal.evaluation.predictions import Predictions
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import bin_statistics, confidence_statistics
from metacal.functional.inputs import ScoreArguments
from metacal.reporting.mistakes import RiskCoverageCurve
from metacal.reporting.reliability import Bins, Classes, Reliability, to_bins
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
from metacal.reporting.summary import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES = 100


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
        draw_bins(axis, statistics.edges.tolist(), bins, whiskers=True)
        axis.set(xlabel="Confidence", ylabel="Share right")
        axis.set_title(f"{title}: ECE {(bins.ece or 0.0) * 100:.2f} %".removeprefix(": "), parse_math=False)
    return axis


def reliability_curves(models: Sequence[Predictions], num_bins: int = 15, ax: Axes | None = None) -> Axes:
    """Draw accuracy over confidence, a line for each model."""
    with house_style():
        axis = new_axis(5.0, 4.8)[1] if ax is None else ax
        bins = [to_bins(confidence_statistics(model.inputs, num_bins)) for model in models]
        draw_curves(axis, [(model.name, each) for model, each in zip(models, bins, strict=True)])
    return axis


def plot_reliability(reliability: Reliability) -> Figure:
    """Reliability diagrams as given and at the temperature of best likelihood, with where the samples are."""
    figure = new_figure(8.0, 5.2)
    axes = figure.subplots(2, 2, sharex=True, height_ratios=(4, 1))
    temperature = reliability.temperatures[reliability.fitted_step]
    diagrams = {
        "As given": reliability.given,
        f"At temperature {temperature:.1f}": reliability.scaled[reliability.fitted_step],
    }
    for (upper, lower), (title, bins) in zip(axes.T, diagrams.items(), strict=True):
        draw_diagram(upper, lower, reliability.edges, bins)
        upper.set(title=f"{title}: ECE {bins.ece:.4f}", ylabel="Share right")
        lower.set_ylabel("Samples")
    return figure


def plot_temperatures(reliability: Reliability) -> Figure:
    """ECE over the grid of temperatures."""
    figure, axis = new_axis(6.0, 2.8)
    errors = [bins.ece or 0.0 for bins in reliability.scaled]
    axis.plot(reliability.temperatures, errors, color=BLUE)
    fitted = reliability.temperatures[reliability.fitted_step]
    axis.axvline(fitted, color=INK, linewidth=0.9, linestyle="--")
    axis.annotate(
        f"best likelihood {fitted:.1f}", (fitted, max(errors)), (5, -9), textcoords="offset points", color=INK
    )
    axis.set(title="ECE over temperature", xlabel="Temperature", ylabel="ECE", ylim=(0.0, None))
    in_percent(axis)
    return figure


def plot_classes(classes: Classes) -> Figure:
    """A small reliability diagram for each predicted class, the worst first (at most `MOST_CLASSES`)."""
    numbers = classes.worst_first[:MOST_CLASSES]
    columns = min(5 if len(numbers) <= 30 else 10, len(numbers))
    rows = -(-len(numbers) // columns)
    figure = new_figure(1.6 * columns, 1.75 * rows)
    for place, number in enumerate(numbers):
        axis = figure.add_subplot(rows, columns, place + 1)
        row = classes.rows[number]
        if row.bins is not None:
            draw_bins(axis, classes.edges, row.bins, whiskers=False)
        axis.set_title(short(row.name, 18), fontsize=8)
        is_left, is_low = place % columns == 0, place + columns >= len(numbers)
        axis.set_xticks((0.0, 0.5, 1.0), ("0", "0.5", "1") if is_low else ("", "", ""))
        axis.set_yticks((0.0, 0.5, 1.0), ("0", "0.5", "1") if is_left else ("", "", ""))
    figure.supxlabel("Confidence", fontsize=9)
    figure.supylabel("Share right", fontsize=9)
    return figure


def plot_risk_coverage(curves: Sequence[tuple[str, RiskCoverageCurve]]) -> Figure:
    """Share wrong against share answered, a line for each name."""
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
    """Share right against confidence, a line for each name."""
    figure, axis = new_axis(5.0, 4.8)
    draw_curves(axis, [(name, reliability.given) for name, reliability in named])
    return figure


def plot_comparison(comparison: Comparison) -> Figure:
    """ECE of each name with its interval."""
    figure, axis = new_axis(6.0, 1.2 + 0.35 * len(comparison.names))
    score = next(score for score in comparison.scores if score.key == "ece")
    for place, value in enumerate(score.values):
        if value is None:
            continue
        colour = SERIES[place % len(SERIES)][0]
        low, high = score.lows[place], score.highs[place]
        if low is not None and high is not None:
            axis.plot((low, high), (place, place), color=colour, alpha=0.5, linewidth=3, solid_capstyle="butt")
        axis.plot(value, place, color=colour, marker="o")
    axis.set_yticks(range(len(comparison.names)), [short(name, 40) for name in comparison.names])
    axis.set(title="Expected calibration error", xlabel="ECE", xlim=(0, None), ylim=(len(comparison.names) - 0.5, -0.5))
    in_percent(axis, "x")
    return figure


def draw_curves(axis: Axes, named: Sequence[tuple[str, Bins]]) -> None:
    """Share right over confidence, a line for each name."""
    draw_diagonal(axis)
    for number, (name, bins) in enumerate(named):
        colour, line = SERIES[number % len(SERIES)]
        held = zip(bins.confidences, bins.accuracies, strict=True)
        points = [(x, y) for x, y in held if x is not None and y is not None]
        axis.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker="o", ms=3.5, label=short(name, 40))
    axis.legend()
    axis.set(title="Reliability", xlabel="Confidence", ylabel="Share right", xlim=(0, 1), ylim=(0, 1))


def draw_diagram(upper: Axes, lower: Axes, edges: Sequence[float], bins: Bins) -> None:
    """A reliability diagram above, the share of samples in each bin below."""
    draw_bins(upper, edges, bins, whiskers=True)
    total = sum(bins.counts)
    shares = [count / total for count in bins.counts]
    lower.bar(edges[:-1], shares, 0.94 * (edges[1] - edges[0]), align="edge", color=COUNT)
    lower.set(xlim=(0.0, 1.0), xlabel="Confidence")
    in_percent(lower)


def draw_bins(axis: Axes, edges: Sequence[float], bins: Bins, whiskers: bool) -> None:
    """Bars of accuracy, the hatched gap to confidence, and the accuracy's interval."""
    width = 0.94 * (edges[1] - edges[0])
    held = [place for place, count in enumerate(bins.counts) if count]
    left = [edges[place] for place in held]
    columns = (bins.accuracies, bins.confidences, bins.lows, bins.highs)
    accuracies, confidences, lows, highs = ([column[place] or 0.0 for place in held] for column in columns)
    axis.bar(left, accuracies, width=width, align="edge", color=BAR)
    for is_over, edge, fill, hatch in ((True, OVER, OVER_FILL, "////"), (False, UNDER, UNDER_FILL, "\\\\\\\\")):
        gaps = [
            (x, min(accuracy, confidence), abs(accuracy - confidence))
            for x, accuracy, confidence in zip(left, accuracies, confidences, strict=True)
            if (confidence > accuracy) == is_over
        ]
        if gaps:
            x, bottom, height = zip(*gaps, strict=True)
            bars = axis.bar(x, height, bottom=bottom, width=width, align="edge", facecolor=fill, edgecolor=edge)
            for bar in bars:
                bar.set(hatch=hatch, linewidth=0.5)
    if whiskers:
        axis.hlines(accuracies, left, [x + width for x in left], color=BLUE, linewidth=1.6)
        # Where all are right or all wrong, an end of the interval is the share itself, but for rounding.
        below = [max(accuracy - low, 0.0) for accuracy, low in zip(accuracies, lows, strict=True)]
        above = [max(high - accuracy, 0.0) for accuracy, high in zip(accuracies, highs, strict=True)]
        middles = [x + width / 2 for x in left]
        axis.errorbar(middles, accuracies, [below, above], color=INK, capsize=2.0, linewidth=0.9, linestyle="none")
    draw_diagonal(axis)
    axis.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
