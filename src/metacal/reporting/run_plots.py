"""Static figures of runs: each ``plot_*`` draws what the ``prepare_*`` of the same thing has worked out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metacal.reporting.runs import Agreement, Curves, Histogram, Line, SmoothingMatrix, Strengths, SuperclassSmoothing
from metacal.reporting.style import (
    BLUE,
    COUNT,
    INK,
    OVER,
    SERIES,
    draw_diagonal,
    in_percent,
    new_axis,
    new_figure,
    short,
    white_to_blue,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_curves(curves: Curves) -> Figure:
    """Error, ECE and loss over epochs, as far as they were measured."""
    panels = [
        ("Share wrong", curves.error, True),
        ("Expected calibration error", curves.ece, True),
        ("Mean loss", curves.loss, False),
    ]
    shown = [panel for panel in panels if panel[1]]
    figure = new_figure(4.0 * len(shown), 3.2)
    for axis, (title, lines, is_share) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        draw_lines(axis, curves.epochs, lines)
        draw_drops(axis, curves.drops)
        axis.set(title=title, xlabel="Epoch", ylim=(0.0, None) if is_share else None)
        axis.legend()
        if is_share:
            in_percent(axis)
    return figure


def plot_agreement(agreement: Agreement) -> Figure:
    """DECE against ECE, one point an epoch, later ones darker."""
    figure, axis = new_axis(4.4, 4.2)
    highest = max(*agreement.ece, *agreement.dece, 1e-9) * 1.05
    draw_diagonal(axis, highest)
    last = max(len(agreement.epochs) - 1, 1)
    colours = [f"{BLUE}{round(64 + 191 * place / last):02x}" for place in range(len(agreement.epochs))]
    axis.scatter(agreement.ece, agreement.dece, color=colours, s=18)
    axis.set(
        title=f"DECE against ECE, {agreement.part}",
        xlabel="ECE",
        ylabel="DECE",
        xlim=(0.0, highest),
        ylim=(0.0, highest),
    )
    in_percent(axis)
    in_percent(axis, "x")
    return figure


def plot_strengths(strengths: Strengths) -> Figure:
    """Smoothing strength of each class over epochs, with the learning-rate drops."""
    figure, axis = new_axis(6.4, 3.4)
    if len(strengths.classes) > 1:
        for line in strengths.classes:
            axis.plot(strengths.epochs, _gaps(line), color=COUNT, linewidth=0.8, alpha=0.5)
    axis.plot(strengths.epochs, strengths.mean, color=BLUE, linewidth=2.2, label="mean")
    draw_drops(axis, strengths.drops)
    axis.set(title="Smoothing strength over training", xlabel="Epoch", ylim=(0.0, None))
    axis.legend()
    in_percent(axis)
    return figure


def plot_smoothing(matrix: SmoothingMatrix) -> Figure:
    """The learned smoothing matrix as a heat map."""
    size = len(matrix.class_names)
    side = min(max(4.0, 1.6 + 0.38 * size), 13.0)
    figure, axis = new_axis(side + 0.8, side)
    draw_matrix(figure, axis, matrix.values, matrix.class_names, shrink=0.6, fontsize=8 if size <= 30 else 5)
    axis.set(title="Smoothing matrix", xlabel="given to", ylabel="class of the sample")
    return figure


def plot_superclasses(superclasses: SuperclassSmoothing) -> Figure:
    """Mean smoothing within and across superclasses."""
    rows = [("All classes", superclasses.within, superclasses.across)]
    rows += [(short(", ".join(row.classes), 40), row.within, row.across) for row in superclasses.rows]
    figure, axis = new_axis(6.4, 1.4 + 0.26 * len(rows))
    for place, (_, within, across) in enumerate(rows):
        if within is not None and across is not None:
            axis.plot((within, across), (place, place), color=COUNT, linewidth=1.2, zorder=1)
    for label, column, colour, fill in (("within", 1, BLUE, BLUE), ("across", 2, OVER, "white")):
        points = [(row[column], place) for place, row in enumerate(rows) if row[column] is not None]
        if points:
            axis.scatter(*zip(*points, strict=True), label=label, edgecolor=colour, color=fill, zorder=2)
    axis.set_yticks(range(len(rows)), [row[0] for row in rows])
    axis.set(title="Mean share given to one other class", ylim=(len(rows) - 0.5, -0.5), xlim=(0.0, None))
    figure.legend(loc="outside lower right", ncols=2)
    in_percent(axis, "x")
    return figure


def plot_l2(histograms: Sequence[Histogram]) -> Figure:
    """Histograms of learned L2 coefficients, two in a row."""
    rows = -(-len(histograms) // 2)
    figure = new_figure(4.0 * min(2, len(histograms)), 2.8 * rows)
    axes = figure.subplots(rows, min(2, len(histograms)), squeeze=False).flat
    for histogram, axis in zip(histograms, axes, strict=False):
        axis.stairs(histogram.counts, histogram.edges, fill=True, color=BLUE)
        axis.axvline(0.0, color=INK, linewidth=0.9)
        axis.ticklabel_format(axis="x", style="plain")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axis.locator_params(axis="x", nbins=5)
        axis.set(title=short(histogram.name, 40), xlabel="L2 coefficient", ylabel="Coefficients")
    for axis in axes:
        axis.remove()  # of an odd number the last place stays empty
    return figure


def draw_matrix(
    figure: Figure,
    axis: Axes,
    values: Sequence[Sequence[float]],
    names: Sequence[str],
    *,
    shrink: float,
    fontsize: float = 9.0,
) -> None:
    """A matrix of shares between classes, with their names and a bar of its colours."""
    highest = max(map(max, values))
    image = axis.imshow(values, cmap=white_to_blue(), vmin=0.0, vmax=highest or 1.0)
    shown = [short(name, 18) for name in names]
    axis.set_xticks(range(len(names)), shown, rotation=90, fontsize=fontsize)
    axis.set_yticks(range(len(names)), shown, fontsize=fontsize)
    axis.grid(visible=False)
    in_percent(figure.colorbar(image, ax=axis, shrink=shrink).ax)


def draw_lines(axis: Axes, epochs: Sequence[int], lines: Sequence[Line]) -> None:
    """Named lines over epochs, gaps where nothing was measured."""
    for number, line in enumerate(lines):
        colour, style = SERIES[number % len(SERIES)]
        axis.plot(epochs, _gaps(line), color=colour, linestyle=style, label=line.name)


def draw_drops(axis: Axes, drops: Sequence[int]) -> None:
    """Dashed verticals before the epochs whose learning rate is lower."""
    for drop in drops:
        axis.axvline(drop - 0.5, color=COUNT, linewidth=0.9, linestyle="--")


def _gaps(line: Line) -> list[float]:
    return [float("nan") if value is None else value for value in line.values]
