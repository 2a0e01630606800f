"""Figures of the paper: `prepare_figure` computes the numbers from stored runs, and `plot_figure` plots them.

Each drawing has a ``prepare_*`` function, from a `Panel` of runs to numbers, and a ``plot_*`` function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from metacal.functional import dece, expected_calibration_error, soft_binned_ece
from metacal.functional.calibration_errors import bin_statistics
from metacal.lab.paper.exhibits import Plan
from metacal.lab.paper.simulated import plot_boundary, plot_sweep, prepare_boundary, prepare_sweep, read_draws
from metacal.lab.training.read_run import read_run
from metacal.lab.training.run_folder import RunFolder, RunStore
from metacal.reporting.prediction_plots import draw_diagram
from metacal.reporting.reliability import Bins, to_bins
from metacal.reporting.run_plots import draw_drops, draw_matrix, plot_l2, plot_superclasses
from metacal.reporting.runs import (
    PARTS,
    Histogram,
    RunView,
    SuperclassSmoothing,
    correlation,
    learning_rate_drops,
    prepare_l2,
    prepare_superclasses,
)
from metacal.reporting.style import BLUE, OVER, SERIES, figure_bytes, house_style, in_percent, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 128
BATCHES = 100
MOST_EPOCHS = 40
"""Number of epochs, evenly spaced over training, after which agreement is measured."""


@dataclass(frozen=True)
class Panel:
    """The complete runs of one dataset, model and method, one per seed."""

    row: str
    column: str
    runs: tuple[RunFolder, ...]

    @property
    def name(self) -> str:
        """Dataset, model and method."""
        return f"{self.row}, {self.column}"

    def views(self) -> list[RunView]:
        """The report view of each run."""
        return [read_run(run.path) for run in self.runs]


@dataclass(frozen=True)
class Band:
    """A line with its spread: mean and population standard deviation over seeds (and classes, for strengths)."""

    name: str
    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class Chart:
    """Bands over epochs, on one pair of axes."""

    title: str
    bands: list[Band]
    epochs: list[int] = field(default_factory=list)  # empty: 1, 2, ...
    drops: list[int] = field(default_factory=list)  # epochs at which the learning rate drops
    lowest: float = 0.0
    is_share: bool = True  # in percent


@dataclass(frozen=True)
class ClassSmoothing:
    """Learned smoothing, mean over seeds."""

    name: str
    class_names: list[str]
    strength: list[float]  # total smoothing of each class
    spread: list[float]  # its standard deviation over seeds
    values: list[list[float]]  # smoothing of each class (row) towards each other (column)


@dataclass(frozen=True)
class ReliabilityPanel:
    """A reliability diagram over all seeds."""

    name: str
    edges: list[float]
    bins: Bins


@dataclass(frozen=True)
class FigureData:
    """The numbers of a figure."""

    name: str
    title: str  # names the setting, if it is not the published one
    claim: str  # what the paper concludes from it
    note: str  # caveats
    drawing: str  # a key of `DRAWINGS`
    panels: list[Any]  # the numbers; empty if there is nothing to plot
    done: int  # complete runs (or draws)
    wanted: int  # planned runs (or draws)
    setting: str = ""  # difference from the published setting, such as ``cpu scale``; empty if none
    command: str = ""  # completes the missing runs

    @property
    def missing(self) -> int:
        """The number of runs (or draws) still to do."""
        return self.wanted - self.done


def prepare_figure(plan: Plan, store: RunStore) -> FigureData:
    """Prepare a figure from the runs in the store."""
    figure, note = plan.exhibit, plan.note
    found: list[Any]
    if plan.draws:
        found = list(read_draws(store.root, plan.draws).values())
        done, wanted = len(found), len(plan.draws)
        note = f"ECE of {plan.draws[0].test_points:,} fresh points."
    else:
        runs = [tuple(run for run in map(store.folder, cell.specs) if run.is_complete) for cell in plan.cells]
        cells = zip(plan.cells, runs, strict=True)
        found = [Panel(cell.row.title, cell.column.label, complete) for cell, complete in cells if complete]
        done, wanted = sum(map(len, runs)), len(plan.cells) * len(figure.seeds)
    panels = DRAWINGS[figure.drawing][0](found, **figure.options) if found else []
    about = (figure.name, plan.title, figure.claim, note, figure.drawing)
    return FigureData(*about, panels, done, wanted, plan.setting)


def plot_figure(data: FigureData) -> Figure | None:
    """Plot a figure, marked if its setting is not the published one; None if there is no data."""
    with house_style():
        figure: Figure | None = DRAWINGS[data.drawing][1](data.panels) if data.panels else None
        if figure is not None and data.setting:
            figure.suptitle(f"Not the published setting: {data.setting}", x=0.01, ha="left", fontsize=8, color=OVER)
        return figure


def image_of(data: FigureData, suffix: str) -> bytes | None:
    """Return a figure as image bytes; None if there is no data."""
    figure = plot_figure(data)
    return None if figure is None else figure_bytes(figure, suffix)


def prepare_gap(panel: Panel) -> list[Chart]:
    """Training and validation error and ECE by epoch."""
    histories, charts = [run.read_history() for run in panel.runs], []
    for title, measure in (("Error", "error"), ("ECE", "ece")):
        columns = [(PARTS[part], f"{part}_{measure}") for part in ("train", "val")]
        bands = [band_of(name, [[row[key] for row in history] for history in histories]) for name, key in columns]
        charts.append(Chart(f"{title}: {panel.name}", bands))
    return charts


def prepare_agreement(panel: Panel, *, sbece_temperature: float | None = None, spearman: bool = False) -> list[Chart]:
    """Agreement of differentiable surrogates with ECE over minibatches of 128 validation samples (or half).

    SB-ECE is one of them if a temperature for it is given; ``spearman`` adds the correlation of ranks.
    """
    surrogates: dict[str, Callable[..., Tensor]] = {"DECE": dece}
    if sbece_temperature is not None:
        surrogates["SB-ECE"] = partial(soft_binned_ece, temperature=sbece_temperature, power=1.0)
    last = min(len(run.read_history()) for run in panel.runs)
    epochs = sorted({round(1 + step * (last - 1) / (MOST_EPOCHS - 1)) for step in range(MOST_EPOCHS)})
    tables = [torch.stack([figures_of_epoch(run, epoch, surrogates) for epoch in epochs]) for run in panel.runs]
    ece, *others = torch.stack(tables).unbind(dim=2)
    correlations = []
    for name, values in zip(surrogates, others, strict=True):
        correlations.append(band_of(f"{name}, Pearson", correlation(ece, values)))
        if spearman:
            correlations.append(band_of(f"{name}, Spearman", correlation(ranks(ece), ranks(values))))
    named = zip(("ECE", *surrogates), (ece, *others), strict=True)
    means = [band_of(name, values.mean(dim=-1)) for name, values in named]
    lowest = min(0.5, min(min(band.mean) for band in correlations) - 0.05)
    title = f"Correlation with ECE: {panel.name}"
    first = Chart(title, correlations, epochs, lowest=lowest, is_share=False)
    return [first, Chart(f"Mean of minibatches: {panel.name}", means, epochs)]


def figures_of_epoch(run: RunFolder, epoch: int, surrogates: Mapping[str, Callable[..., Tensor]]) -> Tensor:
    """ECE and surrogates on validation minibatches after an epoch: ``(1 + surrogates, minibatches)``.

    The minibatches are random, the same in every epoch and for every run.
    """
    logits, targets = run.read_epoch(epoch)["val_logits"].float(), run.read_predictions("val").targets
    order = torch.Generator().manual_seed(0)
    size = min(BATCH, len(targets) // 2)
    rows = [torch.randperm(len(targets), generator=order)[:size] for _ in range(BATCHES)]
    measures: list[Callable[..., Tensor]] = [partial(expected_calibration_error, validate=False), *surrogates.values()]
    found = [[float(measure(logits=logits[some], targets=targets[some])) for some in rows] for measure in measures]
    return torch.tensor(found, dtype=torch.float64)


def ranks(values: Tensor) -> Tensor:
    """Ranks over the last dimension; ties get their mean rank."""
    return torch.from_numpy(stats.rankdata(values, axis=-1))


def prepare_strengths(panels: Sequence[Panel]) -> list[Chart]:
    """Mean and standard deviation of smoothing strengths over seeds and classes, all panels in one chart."""
    bands, drops = [], []
    for panel in panels:
        views = panel.views()
        lines = [line for view in views if view.strengths is not None for line in view.strengths.T]
        bands.append(band_of(panel.row, lines))
        drops.append([epoch for epoch in learning_rate_drops(views[0]) if epoch <= len(bands[-1].mean)])
    title = "Smoothing strength: mean and spread over classes and seeds"
    return [Chart(title, bands, drops=max(drops, key=len))]


def prepare_class_smoothing(panel: Panel) -> list[ClassSmoothing]:
    """Smoothing of each class, in total and towards each other class, at the best checkpoints."""
    views = panel.views()
    matrices = torch.stack([view.smoothing for view in views if view.smoothing is not None])
    given = matrices.sum(dim=2)
    strength, spread = given.mean(dim=0).tolist(), given.std(dim=0, correction=0).tolist()
    names = list(views[0].class_names)
    return [ClassSmoothing(panel.name, names, strength, spread, matrices.mean(dim=0).tolist())]


def prepare_superclass_smoothing(panel: Panel) -> list[SuperclassSmoothing]:
    """Smoothing within and across superclasses, from the mean of the learned matrices; empty without superclasses."""
    views = panel.views()
    matrices = [view.smoothing for view in views if view.smoothing is not None]
    names, superclasses = views[0].class_names, views[0].superclasses
    if not matrices or superclasses is None:
        return []
    return [prepare_superclasses(torch.stack(matrices).mean(dim=0), names, superclasses)]


def prepare_l2_histograms(panel: Panel) -> list[Histogram]:
    """Bin the coefficients of all seeds together."""
    learned = [view.l2 for view in panel.views() if view.l2 is not None]
    joint = {name: torch.cat([values[name].reshape(-1) for values in learned]) for name in learned[0]}
    return [replace(each, name=f"{each.name}, {panel.name}") for each in prepare_l2(joint)]


def prepare_reliability(panel: Panel) -> list[ReliabilityPanel]:
    """Bin the test predictions of all seeds together."""
    tests = [run.read_predictions("test") for run in panel.runs]
    joint = reduce(add, [bin_statistics(logits=t.logits, targets=t.targets, validate=False) for t in tests])
    return [ReliabilityPanel(panel.name, joint.edges.tolist(), to_bins(joint))]


def band_of(name: str, values: Sequence[Sequence[float]] | Tensor) -> Band:
    """Return a band over the first dimension, cut to the shortest seed.

    Examples:
        >>> band_of("ECE", [[1.0, 2.0], [3.0, 2.0, 9.0]])
        Band(name='ECE', mean=[2.0, 2.0], std=[1.0, 0.0])
    """
    shortest = min(len(row) for row in values)
    rows = torch.stack([torch.as_tensor(row, dtype=torch.float64)[:shortest] for row in values])
    return Band(name, rows.mean(dim=0).tolist(), rows.std(dim=0, correction=0).tolist())


def plot_charts(charts: Sequence[Chart]) -> Figure:
    """Plot charts, two per row."""
    columns = min(2, len(charts))
    figure = new_figure((6.4, 8.4)[columns - 1], 3.2 * len(charts) / columns)
    for axis, chart in zip(figure.subplots(len(charts) // columns, columns, squeeze=False).flat, charts, strict=True):
        for number, band in enumerate(chart.bands):
            colour, style = SERIES[number % len(SERIES)]
            steps = chart.epochs or range(1, len(band.mean) + 1)
            mean, std = np.array(band.mean), np.array(band.std)
            axis.plot(steps, mean, color=colour, linestyle=style, label=band.name)
            axis.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        draw_drops(axis, chart.drops)
        axis.set(title=chart.title, xlabel="Epoch", ylim=(chart.lowest, None if chart.is_share else 1.02))
        if chart.is_share:
            in_percent(axis)
        axis.legend()
    return figure


def plot_class_smoothing(panels: Sequence[ClassSmoothing]) -> Figure:
    """Plot strength by class and the matrix, one row per panel."""
    figure = new_figure(10.0, 4.6 * len(panels))
    for (bars, grid), panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        names = [short(name, 18) for name in panel.class_names]
        bars.barh(range(len(names)), panel.strength, xerr=panel.spread, color=BLUE, alpha=0.8)
        bars.set_yticks(range(len(names)), names)
        bars.set(title=f"Strength: {panel.name}", ylim=(len(names) - 0.5, -0.5))
        in_percent(bars, "x")
        draw_matrix(figure, grid, panel.values, panel.class_names, shrink=0.7)
        grid.set(title="Smoothing of class (row) towards class (column)")
    return figure


def plot_reliability_diagrams(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Plot diagrams, with shares of samples below."""
    figure = new_figure(3.4 * len(panels), 4.8)
    axes = figure.subplots(2, len(panels), sharex=True, squeeze=False, height_ratios=(4, 1))
    for (upper, lower), panel in zip(axes.T, panels, strict=True):
        draw_diagram(upper, lower, panel.edges, panel.bins)
        upper.set_title(f"{panel.name}\nECE {panel.bins.ece or 0.0:.2%}", fontsize=8)
    axes[0][0].set_ylabel("Accuracy")
    axes[1][0].set_ylabel("Samples")
    return figure


def each(prepare: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Apply a preparation to every panel."""
    return lambda panels, **options: [item for panel in panels for item in prepare(panel, **options)]


DRAWINGS: dict[str, tuple[Callable[..., list[Any]], Callable[[Any], Figure]]] = {
    "gap": (each(prepare_gap), plot_charts),
    "agreement": (each(prepare_agreement), plot_charts),
    "strengths": (prepare_strengths, plot_charts),
    "class-smoothing": (each(prepare_class_smoothing), plot_class_smoothing),
    "superclasses": (each(prepare_superclass_smoothing), lambda panels: plot_superclasses(panels[0])),
    "l2": (each(prepare_l2_histograms), plot_l2),
    "reliability": (each(prepare_reliability), plot_reliability_diagrams),
    "sweep": (prepare_sweep, plot_sweep),
    "boundary": (prepare_boundary, plot_boundary),
}
"""By name: a function from panels of runs (or records of draws) to numbers, and one from numbers to the figure."""
