"""`plot_figure`: a figure of the paper, drawn from exactly the numbers that `prepare_figures` has worked out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metacal.lab.paper.prepare_figures import (
    AgreementPanel,
    Band,
    ClassSmoothing,
    FigureData,
    GapPanel,
    L2Panel,
    ReliabilityPanel,
    StrengthsPanel,
    SuperclassPanel,
)
from metacal.lab.paper.simulated import Boundary, SweepLine
from metacal.reporting.prediction_plots import draw_diagram
from metacal.reporting.run_plots import draw_drops, draw_matrix, plot_l2, plot_superclasses
from metacal.reporting.style import BLUE, INK, OVER, SERIES, figure_bytes, house_style, in_percent, new_figure, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "oracle": "oracle",
    "ce": "cross-entropy",
    "ls": "label smoothing",
    "mc": "meta-calibration",
    "ce-n": "cross-entropy on half of them",
}


def plot_figure(data: FigureData) -> Figure | None:
    """The drawing; None where there is nothing to draw. One that is not of the published setting says so itself."""
    with house_style():
        figure = PLOTS[data.drawing](data.panels) if data.panels else None
        if figure is not None and data.setting:
            figure.suptitle(f"Not the published setting: {data.setting}", x=0.01, ha="left", fontsize=8, color=OVER)
        return figure


def image_of(data: FigureData, suffix: str) -> bytes | None:
    """A figure as the bytes of an image; None where there is nothing to draw."""
    figure = plot_figure(data)
    return None if figure is None else figure_bytes(figure, suffix)


def plot_gap(panels: Sequence[GapPanel]) -> Figure:
    """A row of axes for each panel: error, then ECE."""
    figure = new_figure(8.4, 3.2 * len(panels))
    for axes, panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        for axis, title, bands in zip(axes, ("Share wrong", "ECE"), (panel.error, panel.ece), strict=True):
            draw_bands(axis, bands)
            axis.set(title=f"{title}: {panel.name}", xlabel="Epoch", ylim=(0.0, None))
            in_percent(axis)
            axis.legend()
    return figure


def plot_agreement_over_training(panels: Sequence[AgreementPanel]) -> Figure:
    """A row of axes for each panel: correlations, then means."""
    figure = new_figure(8.4, 3.2 * len(panels))
    for axes, panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        lowest = min(min(band.mean) for band in panel.correlations)
        for axis, title, bands in zip(
            axes, ("Correlation with ECE", "Mean of minibatches"), (panel.correlations, panel.means), strict=True
        ):
            draw_bands(axis, bands, panel.epochs)
            axis.set(title=f"{title}: {panel.name}", xlabel="Epoch")
            axis.legend()
        axes[0].set_ylim(min(0.5, lowest - 0.05), 1.02)
        axes[1].set_ylim(0.0, None)
        in_percent(axes[1])
    return figure


def plot_strengths_over_training(panels: Sequence[StrengthsPanel]) -> Figure:
    """All panels on one pair of axes."""
    figure = new_figure(6.4, 3.4)
    axis = figure.subplots()
    draw_bands(axis, [panel.band for panel in panels])
    draw_drops(axis, max((panel.drops for panel in panels), key=len))
    axis.set(title="Smoothing strength: mean and spread over classes and seeds", xlabel="Epoch", ylim=(0.0, None))
    in_percent(axis)
    axis.legend()
    return figure


def plot_class_smoothing(panels: Sequence[ClassSmoothing]) -> Figure:
    """A row of axes for each panel: strength by class, and the matrix."""
    figure = new_figure(10.0, 4.6 * len(panels))
    for (bars, grid), panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        names = [short(name, 18) for name in panel.class_names]
        bars.barh(range(len(names)), panel.strength, xerr=panel.spread, color=BLUE, alpha=0.8)
        bars.set_yticks(range(len(names)), names)
        bars.set(title=f"Strength: {panel.name}", ylim=(len(names) - 0.5, -0.5))
        in_percent(bars, "x")
        draw_matrix(figure, grid, panel.values, panel.class_names, shrink=0.7)
        grid.set(title="Given to (columns) by (rows)")
    return figure


def plot_superclass_panels(panels: Sequence[SuperclassPanel]) -> Figure | None:
    """The first panel; None if its data have no superclasses."""
    return None if panels[0].smoothing is None else plot_superclasses(panels[0].smoothing)


def plot_l2_panels(panels: Sequence[L2Panel]) -> Figure:
    """One histogram beside the other."""
    return plot_l2([replace(each, name=f"{each.name}, {panel.name}") for panel in panels for each in panel.histograms])


def plot_reliability_panels(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Diagrams above, shares of samples below."""
    figure = new_figure(3.4 * len(panels), 4.8)
    axes = figure.subplots(2, len(panels), sharex=True, squeeze=False, height_ratios=(4, 1))
    for (upper, lower), panel in zip(axes.T, panels, strict=True):
        draw_diagram(upper, lower, panel.edges, panel.bins)
        upper.set_title(f"{panel.name}\nECE {panel.bins.ece or 0.0:.2%}", fontsize=8)
    axes[0][0].set_ylabel("Share right")
    axes[1][0].set_ylabel("Samples")
    return figure


def plot_sweep(lines: Sequence[SweepLine]) -> Figure:
    """ECE over the number of labels, both on logarithmic axes."""
    figure = new_figure(6.6, 4.0)
    axis = figure.subplots()
    for line, (colour, style) in zip(lines, SERIES, strict=False):
        labels = [2 * size for size in line.sizes]
        axis.plot(labels, line.mean, color=colour, linestyle=style, marker="o", ms=3.5, label=NAMES[line.method])
        low = [max(low, 1e-4) for low in line.low]
        axis.fill_between(labels, low, line.high, color=colour, alpha=0.13, linewidth=0)
    axis.set(xscale="log", yscale="log", xlabel="Labels seen by each method (2n)", ylabel="ECE")
    axis.set_xticks([2 * size for size in lines[0].sizes], [str(2 * size) for size in lines[0].sizes])
    axis.minorticks_off()
    axis.set_yticks((0.002, 0.005, 0.01, 0.02, 0.05, 0.1))
    fewest, most = min(lines[0].draws), max(lines[0].draws)
    draws = f"{most}" if fewest == most else f"{fewest} to {most}"
    title = f"Simulated data: mean of {draws} draws, 95 % intervals" if most > 1 else "Simulated data: one draw"
    axis.set_title(title, loc="left")
    in_percent(axis)
    axis.legend()
    return figure


def plot_boundary(methods: Sequence[Boundary]) -> Figure:
    """Test points shaded by the probability each method gives them, and the line at one half."""
    figure = new_figure(3.0 * len(methods), 3.2)
    axes = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axis, found in zip(axes, methods, strict=True):
        for label, marker in ((0, "o"), (1, "^")):
            points = [(x, y) for x, y, target in found.points if int(target) == label]
            probs = [_sigmoid(found.weight[0] * x + found.weight[1] * y + found.bias) for x, y in points]
            x, y = zip(*points, strict=True) if points else ((), ())
            shown = axis.scatter(x, y, c=probs, cmap="RdBu_r", vmin=0, vmax=1, s=14, marker=marker)
        draw_boundary(axis, found)
        axis.set(title=f"{NAMES[found.method]}\nECE {found.ece:.2%}", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
        axis.grid(visible=False)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="probability of class 1 (triangles)")
    return figure


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-500.0, logit)))


def draw_boundary(axis: Axes, found: Boundary) -> None:
    """The line on which both classes are as likely."""
    a, b = found.weight
    ends = (-3.0, 3.0)
    if abs(b) >= abs(a):
        axis.plot(ends, [-(a * x + found.bias) / (b or 1e-12) for x in ends], color=INK, linewidth=1.2)
    else:
        axis.plot([-(b * y + found.bias) / a for y in ends], ends, color=INK, linewidth=1.2)


def draw_bands(axis: Axes, bands: Sequence[Band], epochs: Sequence[int] | None = None) -> None:
    """Lines over epochs (1, 2, ... unless given) with their spread as a shade."""
    for number, band in enumerate(bands):
        colour, style = SERIES[number % len(SERIES)]
        steps = epochs or range(1, len(band.mean) + 1)
        low = [mean - std for mean, std in zip(band.mean, band.std, strict=True)]
        high = [mean + std for mean, std in zip(band.mean, band.std, strict=True)]
        axis.plot(steps, band.mean, color=colour, linestyle=style, label=band.name)
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


PLOTS: dict[str, Callable[[Any], Figure | None]] = {
    "gap": plot_gap,
    "agreement": plot_agreement_over_training,
    "strengths": plot_strengths_over_training,
    "class-smoothing": plot_class_smoothing,
    "superclasses": plot_superclass_panels,
    "l2": plot_l2_panels,
    "reliability": plot_reliability_panels,
    "sweep": plot_sweep,
    "boundary": plot_boundary,
}
"""By drawing: from the numbers of its panels to the figure."""
