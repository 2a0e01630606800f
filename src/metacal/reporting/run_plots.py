"""Static figures of runs: each ``plot_*`` draws the numbers of the corresponding ``prepare_*``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metacal.reporting.runs import Histogram, SmoothingMatrix, SuperclassSmoothing
from metacal.reporting.shift import Shift
from metacal.reporting.style import BLUE, COUNT, INK, OVER, in_percent, new_axis, new_figure, short, white_to_blue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_smoothing(matrix: SmoothingMatrix) -> Figure:
    """Plot the learned smoothing matrix as a heat map."""
    size = len(matrix.class_names)
    side = min(max(4.0, 1.6 + 0.38 * size), 13.0)
    figure, axis = new_axis(side + 0.8, side)
    draw_matrix(figure, axis, matrix.values, matrix.class_names, shrink=0.6, fontsize=8 if size <= 30 else 5)
    axis.set(title="Smoothing matrix", xlabel="given to", ylabel="class of the sample")
    return figure


def plot_superclasses(superclasses: SuperclassSmoothing) -> Figure:
    """Plot mean smoothing within and across superclasses."""
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
    """Plot histograms of learned L2 coefficients, two in a row."""
    rows, columns = -(-len(histograms) // 2), min(2, len(histograms))
    figure = new_figure(4.0 * columns, 2.8 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).flat
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


def plot_shift(shift: Shift) -> Figure:
    """Plot ECE, ECE with the clean temperature and error by corruption and severity, in percent."""
    rows = len(shift.corruptions)
    figure = new_figure(3.6 + 2.5 * len(shift.maps), 1.4 + 0.27 * rows)
    axes = figure.subplots(1, len(shift.maps), sharey=True, squeeze=False)[0]
    # The two calibration errors share a scale: what a temperature fixes shows at once.
    together = max(max(map(max, each.values)) for each in shift.maps if each.figure != "error")
    for axis, each in zip(axes, shift.maps, strict=True):
        highest = max(map(max, each.values)) if each.figure == "error" else together
        axis.grid(visible=False)
        axis.imshow(each.values, cmap="Blues", vmin=0.0, vmax=max(highest, 1e-9) * 1.25, aspect="auto")
        for row, line in enumerate(each.values):
            for column, value in enumerate(line):
                colour = "white" if value > 0.75 * highest else INK
                axis.text(column, row, f"{100 * value:.1f}", ha="center", va="center", fontsize=7.5, color=colour)
        axis.set_xticks(range(len(shift.severities)), [str(severity) for severity in shift.severities])
        axis.set_xlabel("severity")
        means = f"clean {100 * each.clean:.1f}, average {100 * each.average:.1f}, worst {100 * each.worst:.1f}"
        axis.set_title(f"{each.title}, %\n{means}", fontsize=8.5)
    axes[0].set_yticks(range(rows), [name.replace("_", " ") for name in shift.corruptions])
    figure.suptitle(f"{shift.name} ({shift.source}), {shift.samples:,} images a domain", fontsize=9, x=0.01, ha="left")
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
    """Draw a matrix of shares between classes, with names and a colour bar."""
    image = axis.imshow(values, cmap=white_to_blue(), vmin=0.0, vmax=max(map(max, values)) or 1.0)
    shown = [short(name, 18) for name in names]
    axis.set_xticks(range(len(names)), shown, rotation=90, fontsize=fontsize)
    axis.set_yticks(range(len(names)), shown, fontsize=fontsize)
    axis.grid(visible=False)
    in_percent(figure.colorbar(image, ax=axis, shrink=shrink).ax)


def draw_drops(axis: Axes, drops: Sequence[int]) -> None:
    """Draw dashed lines before epochs with a lower learning rate."""
    for drop in drops:
        axis.axvline(drop - 0.5, color=COUNT, linewidth=0.9, linestyle="--")
