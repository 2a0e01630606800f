"""Figures of the paper: `prepare_figure` works out the numbers from what runs have stored, `plot_figure` draws those.

Each drawing has a ``prepare_*``, from a `Panel` of runs for each row and column to numbers, and a ``plot_*``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import torch
from scipy import stats
from torch import Tensor

from metacal.functional import dece, expected_calibration_error, soft_binned_ece
from metacal.functional.calibration_errors import bin_statistics
from metacal.lab.paper.exhibits import Plan, PlannedCell
from metacal.lab.paper.simulated import DrawStore, plot_boundary, plot_sweep, prepare_boundary, prepare_sweep
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
"""Epochs that agreement is measured after, evenly over training."""


@dataclass(frozen=True)
class Panel:
    """The complete runs of one data set, model and method, one a seed."""

    row: str
    column: str
    runs: tuple[RunFolder, ...]

    @property
    def name(self) -> str:
        """Data set, model and method."""
        return f"{self.row}, {self.column}"

    def views(self) -> list[RunView]:
        """What a report shows of each run."""
        return [read_run(run.path) for run in self.runs]


@dataclass(frozen=True)
class Band:
    """A line with its spread: mean and population standard deviation over seeds (and classes, for strengths)."""

    name: str
    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class Chart:
    """Bands over epochs, on axes of their own."""

    title: str
    bands: list[Band]
    epochs: list[int] = field(default_factory=list)  # 1, 2, ... if there are none
    drops: list[int] = field(default_factory=list)  # epochs at which the learning rate drops
    lowest: float = 0.0
    is_share: bool = True  # in percent


@dataclass(frozen=True)
class ClassSmoothing:
    """Learned smoothing, mean over seeds."""

    name: str  # of the panel
    class_names: list[str]  # K names
    strength: list[float]  # what each class gives away in all
    spread: list[float]  # standard deviation of it over seeds
    values: list[list[float]]  # what each class (row) gives to each other (column)


@dataclass(frozen=True)
class ReliabilityPanel:
    """A reliability diagram, all seeds together."""

    name: str
    edges: list[float]
    bins: Bins


@dataclass(frozen=True)
class FigureData:
    """The numbers of a figure."""

    name: str  # of the figure
    title: str  # with the setting in it, if it is not the published one
    claim: str  # what the paper concludes from it
    note: str  # what a reader must know before comparing
    drawing: str  # a key of `DRAWINGS`
    panels: list[Any]  # the numbers; empty where there is nothing to draw
    done: int  # runs (or draws) that are behind it
    wanted: int  # how many there should be
    setting: str = ""  # what is not as published, such as ``cpu scale``; empty where nothing is
    command: str = ""  # fills what is missing

    @property
    def missing(self) -> int:
        """How many runs (or draws) are still to be done."""
        return self.wanted - self.done


def prepare_figure(plan: Plan, store: RunStore) -> FigureData:
    """Gather what the store has of a figure."""
    figure, note = plan.exhibit, plan.note
    prepare, _ = DRAWINGS[figure.drawing]
    found: list[Any]
    if plan.draws:
        kept = DrawStore(store.root)
        found = [kept.read(draw) for draw in plan.draws if kept.has(draw)]
        done, wanted = len(found), len(plan.draws)
        note = f"ECE of {plan.draws[0].test_points:,} fresh points."
    else:
        found = [panel for cell in plan.cells if (panel := _panel_of(cell, store)).runs]
        done, wanted = sum(len(panel.runs) for panel in found), len(plan.cells) * len(figure.seeds)
    panels = prepare(found, **figure.options) if found else []
    about = (figure.name, plan.title, figure.claim, note, figure.drawing)
    return FigureData(*about, panels, done, wanted, plan.setting)


def _panel_of(cell: PlannedCell, store: RunStore) -> Panel:
    complete = tuple(folder for folder in map(store.folder, cell.specs) if folder.is_complete)
    return Panel(f"{cell.row.dataset} {cell.row.model}", cell.column.label, complete)


def plot_figure(data: FigureData) -> Figure | None:
    """The drawing; None where there is nothing to draw. One that is not of the published setting says so itself."""
    with house_style():
        figure: Figure | None = DRAWINGS[data.drawing][1](data.panels) if data.panels else None
        if figure is not None and data.setting:
            figure.suptitle(f"Not the published setting: {data.setting}", x=0.01, ha="left", fontsize=8, color=OVER)
        return figure


def image_of(data: FigureData, suffix: str) -> bytes | None:
    """A figure as the bytes of an image; None where there is nothing to draw."""
    figure = plot_figure(data)
    return None if figure is None else figure_bytes(figure, suffix)


def prepare_gap(panels: Sequence[Panel]) -> list[Chart]:
    """Error and ECE over training, on what is trained on and on what is not."""
    charts = []
    for panel in panels:
        histories = [run.read_history() for run in panel.runs]
        for title, measure in (("Share wrong", "error"), ("ECE", "ece")):
            columns = [(PARTS[part], f"{part}_{measure}") for part in ("train", "val")]
            bands = [band_of(name, [[row[key] for row in history] for history in histories]) for name, key in columns]
            charts.append(Chart(f"{title}: {panel.name}", bands))
    return charts


def prepare_agreement(
    panels: Sequence[Panel], *, sbece_temperature: float | None = None, spearman: bool = False
) -> list[Chart]:
    """How near differentiable stand-ins come to ECE, over minibatches of 128 validation samples (or half of them).

    SB-ECE is one of them if a temperature for it is given; ``spearman`` adds the correlation of ranks.
    """
    stand_ins: dict[str, Callable[..., Tensor]] = {"DECE": dece}
    if sbece_temperature is not None:
        stand_ins["SB-ECE"] = partial(soft_binned_ece, temperature=sbece_temperature, power=1.0)
    charts = []
    for panel in panels:
        last = min(len(run.read_history()) for run in panel.runs)
        epochs = sorted({round(1 + step * (last - 1) / (MOST_EPOCHS - 1)) for step in range(MOST_EPOCHS)})
        tables = [torch.stack([figures_of_epoch(run, epoch, stand_ins) for epoch in epochs]) for run in panel.runs]
        ece, *others = torch.stack(tables).unbind(dim=2)
        correlations = []
        for name, values in zip(stand_ins, others, strict=True):
            correlations.append(band_of(f"{name}, Pearson", correlation(ece, values)))
            if spearman:
                correlations.append(band_of(f"{name}, Spearman", correlation(ranks(ece), ranks(values))))
        named = zip(("ECE", *stand_ins), (ece, *others), strict=True)
        means = [band_of(name, values.mean(dim=-1)) for name, values in named]
        lowest = min(0.5, min(min(band.mean) for band in correlations) - 0.05)
        title = f"Correlation with ECE: {panel.name}"
        charts.append(Chart(title, correlations, epochs, lowest=lowest, is_share=False))
        charts.append(Chart(f"Mean of minibatches: {panel.name}", means, epochs))
    return charts


def figures_of_epoch(run: RunFolder, epoch: int, stand_ins: Mapping[str, Callable[..., Tensor]]) -> Tensor:
    """ECE and each stand-in of minibatches of the validation set after an epoch: ``(1 + stand-ins, minibatches)``.

    The minibatches are random, the same in every epoch and for every run.
    """
    logits, targets = run.read_epoch(epoch)["val_logits"].float(), run.read_predictions("val").targets
    order = torch.Generator().manual_seed(0)
    size = min(BATCH, len(targets) // 2)
    rows = [torch.randperm(len(targets), generator=order)[:size] for _ in range(BATCHES)]
    measures: list[Callable[..., Tensor]] = [partial(expected_calibration_error, validate=False), *stand_ins.values()]
    return torch.tensor(
        [[float(measure(logits=logits[some], targets=targets[some])) for some in rows] for measure in measures],
        dtype=torch.float64,
    )


def ranks(values: Tensor) -> Tensor:
    """Ranks over the last dimension, ties sharing their mean rank."""
    return torch.from_numpy(stats.rankdata(values, axis=-1))


def prepare_strengths(panels: Sequence[Panel]) -> list[Chart]:
    """Mean and standard deviation of smoothing strengths over seeds and classes, all panels on one pair of axes."""
    bands, drops = [], []
    for panel in panels:
        views = panel.views()
        lines = [line for view in views if view.strengths is not None for line in view.strengths.T]
        bands.append(band_of(panel.row, lines))
        drops.append([epoch for epoch in learning_rate_drops(views[0]) if epoch <= len(bands[-1].mean)])
    title = "Smoothing strength: mean and spread over classes and seeds"
    return [Chart(title, bands, drops=max(drops, key=len))]


def prepare_class_smoothing(panels: Sequence[Panel]) -> list[ClassSmoothing]:
    """How much each class is smoothed, and towards which others, at the best checkpoints."""
    found = []
    for panel in panels:
        views = panel.views()
        matrices = torch.stack([view.smoothing for view in views if view.smoothing is not None])
        given = matrices.sum(dim=2)
        strength, spread = given.mean(dim=0).tolist(), given.std(dim=0, correction=0).tolist()
        names = list(views[0].class_names)
        found.append(ClassSmoothing(panel.name, names, strength, spread, matrices.mean(dim=0).tolist()))
    return found


def prepare_superclass_smoothing(panels: Sequence[Panel]) -> list[SuperclassSmoothing]:
    """Smoothing within and across superclasses, from the mean of the learned matrices; none without superclasses."""
    found = []
    for panel in panels:
        views = panel.views()
        matrices = [view.smoothing for view in views if view.smoothing is not None]
        names, superclasses = views[0].class_names, views[0].superclasses
        if matrices and superclasses is not None:
            found.append(prepare_superclasses(torch.stack(matrices).mean(dim=0), names, superclasses))
    return found


def prepare_l2_histograms(panels: Sequence[Panel]) -> list[Histogram]:
    """Coefficients of every seed, binned together."""
    found: list[Histogram] = []
    for panel in panels:
        learned = [view.l2 for view in panel.views() if view.l2 is not None]
        joint = {name: torch.cat([values[name].reshape(-1) for values in learned]) for name in learned[0]}
        found += [replace(each, name=f"{each.name}, {panel.name}") for each in prepare_l2(joint)]
    return found


def prepare_reliability(panels: Sequence[Panel]) -> list[ReliabilityPanel]:
    """Test predictions of every seed, binned together."""
    found = []
    for panel in panels:
        tests = [run.read_predictions("test") for run in panel.runs]
        joint = reduce(add, [bin_statistics(logits=t.logits, targets=t.targets, validate=False) for t in tests])
        found.append(ReliabilityPanel(panel.name, joint.edges.tolist(), to_bins(joint)))
    return found


def band_of(name: str, values: Sequence[Sequence[float]] | Tensor) -> Band:
    """A band over the first dimension; seeds that stopped early cut it to the shortest.

    Examples:
        >>> band_of("ECE", [[1.0, 2.0], [3.0, 2.0, 9.0]])
        Band(name='ECE', mean=[2.0, 2.0], std=[1.0, 0.0])
    """
    shortest = min(len(row) for row in values)
    rows = torch.stack([torch.as_tensor(row, dtype=torch.float64)[:shortest] for row in values])
    return Band(name, rows.mean(dim=0).tolist(), rows.std(dim=0, correction=0).tolist())


def plot_charts(charts: Sequence[Chart]) -> Figure:
    """Two charts in a row, or one alone."""
    columns = min(2, len(charts))
    figure = new_figure((6.4, 8.4)[columns - 1], 3.2 * len(charts) / columns)
    for axis, chart in zip(figure.subplots(len(charts) // columns, columns, squeeze=False).flat, charts, strict=True):
        for number, band in enumerate(chart.bands):
            colour, style = SERIES[number % len(SERIES)]
            steps = chart.epochs or range(1, len(band.mean) + 1)
            low = [mean - std for mean, std in zip(band.mean, band.std, strict=True)]
            high = [mean + std for mean, std in zip(band.mean, band.std, strict=True)]
            axis.plot(steps, band.mean, color=colour, linestyle=style, label=band.name)
            axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        draw_drops(axis, chart.drops)
        axis.set(title=chart.title, xlabel="Epoch", ylim=(chart.lowest, None if chart.is_share else 1.02))
        if chart.is_share:
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


def plot_reliability_diagrams(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Diagrams above, shares of samples below."""
    figure = new_figure(3.4 * len(panels), 4.8)
    axes = figure.subplots(2, len(panels), sharex=True, squeeze=False, height_ratios=(4, 1))
    for (upper, lower), panel in zip(axes.T, panels, strict=True):
        draw_diagram(upper, lower, panel.edges, panel.bins)
        upper.set_title(f"{panel.name}\nECE {panel.bins.ece or 0.0:.2%}", fontsize=8)
    axes[0][0].set_ylabel("Share right")
    axes[1][0].set_ylabel("Samples")
    return figure


DRAWINGS: dict[str, tuple[Callable[..., list[Any]], Callable[[Any], Figure]]] = {
    "gap": (prepare_gap, plot_charts),
    "agreement": (prepare_agreement, plot_charts),
    "strengths": (prepare_strengths, plot_charts),
    "class-smoothing": (prepare_class_smoothing, plot_class_smoothing),
    "superclasses": (prepare_superclass_smoothing, lambda panels: plot_superclasses(panels[0])),
    "l2": (prepare_l2_histograms, plot_l2),
    "reliability": (prepare_reliability, plot_reliability_diagrams),
    "sweep": (prepare_sweep, plot_sweep),
    "boundary": (prepare_boundary, plot_boundary),
}
"""By name: from panels of runs (or records of draws) to numbers, and from these to the figure."""
