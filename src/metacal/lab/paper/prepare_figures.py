"""`prepare_figure`: the numbers of a figure of the paper, from what runs have stored; `plot_figures` draws them.

Each drawing has a ``prepare_*`` here, from a `Panel` of runs to the numbers of that panel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from metacal.functional import dece, expected_calibration_error, soft_binned_ece
from metacal.functional.calibration_errors import bin_statistics
from metacal.lab.paper.exhibits import PaperFigure, Plan, PlannedCell, SimulatedStudy
from metacal.lab.paper.simulated import DrawStore, prepare_boundary, prepare_sweep
from metacal.lab.training.read_run import read_run
from metacal.lab.training.run_folder import RunFolder, RunStore
from metacal.reporting.reliability import Bins, to_bins
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
class GapPanel:
    """Error and ECE over epochs, each of the training and the validation part."""

    name: str
    error: list[Band]
    ece: list[Band]


@dataclass(frozen=True)
class AgreementPanel:
    """Correlations with ECE over minibatches and means over them (ECE itself first), after each of some epochs."""

    name: str
    epochs: list[int]
    correlations: list[Band]
    means: list[Band]


@dataclass(frozen=True)
class StrengthsPanel:
    """Smoothing strength over epochs, and the epochs at which the learning rate drops."""

    name: str
    band: Band
    drops: list[int]


@dataclass(frozen=True)
class ClassSmoothing:
    """Learned smoothing, mean over seeds."""

    name: str  # of the panel
    class_names: list[str]  # K names
    strength: list[float]  # what each class gives away in all
    spread: list[float]  # standard deviation of it over seeds
    values: list[list[float]]  # what each class (row) gives to each other (column)


@dataclass(frozen=True)
class SuperclassPanel:
    """Smoothing within and across superclasses, mean over seeds; None if the data have no superclasses."""

    name: str
    smoothing: SuperclassSmoothing | None


@dataclass(frozen=True)
class L2Panel:
    """Histograms of learned L2 coefficients, all seeds together."""

    name: str
    histograms: list[Histogram]


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
    drawing: str  # which plot draws it
    panels: list[Any]  # the numbers of each panel; empty where no run is complete
    done: int  # runs (or draws) that are behind it
    wanted: int  # how many there should be
    setting: str = ""  # what is not as published, such as ``cpu scale``; empty where nothing is
    command: str = ""  # fills what is missing

    @property
    def missing(self) -> int:
        """How many runs (or draws) are still to be done."""
        return self.wanted - self.done

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kept = {key: getattr(self, key) for key in ("name", "title", "claim", "note", "done", "wanted", "command")}
        return {**kept, "panels": [asdict(panel) for panel in self.panels]}


def prepare_figure(plan: Plan, store: RunStore) -> FigureData:
    """Gather what the store has of a figure."""
    figure, note = plan.exhibit, plan.note
    assert isinstance(figure, PaperFigure | SimulatedStudy)
    if isinstance(figure, PaperFigure):
        found = [panel for cell in plan.cells if (panel := _panel_of(cell, store)).runs]
        panels = [PREPARE[figure.drawing](panel, **figure.options) for panel in found]
        done, wanted = sum(len(panel.runs) for panel in found), len(plan.cells) * len(figure.seeds)
    else:
        kept = DrawStore(store.root)
        records = [kept.read(draw) for draw in plan.draws if kept.has(draw)]
        panels = PREPARE_STUDY[figure.drawing](records) if records else []
        done, wanted = len(records), len(plan.draws)
        note = f"ECE of {plan.draws[0].test_points:,} fresh points."
    about = (figure.name, plan.title, figure.claim, note, figure.drawing)
    return FigureData(*about, panels, done, wanted, plan.setting)


def _panel_of(cell: PlannedCell, store: RunStore) -> Panel:
    complete = tuple(folder for folder in map(store.folder, cell.specs) if folder.is_complete)
    return Panel(f"{cell.row.dataset} {cell.row.model}", cell.column.label, complete)


def prepare_gap(panel: Panel) -> GapPanel:
    """Error and ECE over training, on what is trained on and on what is not."""
    histories = [run.read_history() for run in panel.runs]
    error, ece = (
        [
            band_of(PARTS[part], [[row[f"{part}_{measure}"] for row in history] for history in histories])
            for part in ("train", "val")
        ]
        for measure in ("error", "ece")
    )
    return GapPanel(panel.name, error, ece)


def prepare_agreement_over_training(
    panel: Panel, *, sbece_temperature: float | None = None, spearman: bool = False
) -> AgreementPanel:
    """How near differentiable stand-ins come to ECE, over minibatches of 128 validation samples (or half of them).

    SB-ECE is one of them if a temperature for it is given; ``spearman`` adds the correlation of ranks.
    """
    stand_ins: dict[str, Callable[..., Tensor]] = {"DECE": dece}
    if sbece_temperature is not None:
        stand_ins["SB-ECE"] = partial(soft_binned_ece, temperature=sbece_temperature, power=1.0)
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
    return AgreementPanel(panel.name, epochs, correlations, means)


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
    wide = values.unsqueeze(-1)
    below = (values.unsqueeze(-2) < wide).sum(dim=-1)
    equal = (values.unsqueeze(-2) == wide).sum(dim=-1)
    return below + (equal - 1) / 2


def prepare_strengths_over_training(panel: Panel) -> StrengthsPanel:
    """Mean and standard deviation of smoothing strengths over seeds and classes."""
    views = panel.views()
    learned = [view.strengths for view in views if view.strengths is not None]
    shortest = min(len(strengths) for strengths in learned)
    lines = torch.cat([strengths[:shortest].T for strengths in learned])
    drops = [epoch for epoch in learning_rate_drops(views[0]) if epoch <= shortest]
    return StrengthsPanel(panel.name, band_of(panel.row, lines), drops)


def prepare_class_smoothing(panel: Panel) -> ClassSmoothing:
    """How much each class is smoothed, and towards which others, at the best checkpoints."""
    views = panel.views()
    matrices = torch.stack([view.smoothing for view in views if view.smoothing is not None])
    given = matrices.sum(dim=2)
    strength, spread = given.mean(dim=0).tolist(), given.std(dim=0, correction=0).tolist()
    return ClassSmoothing(panel.name, list(views[0].class_names), strength, spread, matrices.mean(dim=0).tolist())


def prepare_superclass_panel(panel: Panel) -> SuperclassPanel:
    """Smoothing within and across superclasses, from the mean of the learned matrices."""
    views = panel.views()
    matrices = [view.smoothing for view in views if view.smoothing is not None]
    names, superclasses = views[0].class_names, views[0].superclasses
    if not matrices or superclasses is None:
        return SuperclassPanel(panel.name, None)
    mean = torch.stack(matrices).mean(dim=0)
    return SuperclassPanel(panel.name, prepare_superclasses(mean, names, superclasses))


def prepare_l2_panel(panel: Panel) -> L2Panel:
    """Coefficients of every seed, binned together."""
    learned = [view.l2 for view in panel.views() if view.l2 is not None]
    joint = {name: torch.cat([values[name].reshape(-1) for values in learned]) for name in learned[0]}
    return L2Panel(panel.name, prepare_l2(joint))


def prepare_reliability_panel(panel: Panel) -> ReliabilityPanel:
    """Test predictions of every seed, binned together."""
    tests = [run.read_predictions("test") for run in panel.runs]
    joint = reduce(add, [bin_statistics(logits=t.logits, targets=t.targets, validate=False) for t in tests])
    return ReliabilityPanel(panel.name, joint.edges.tolist(), to_bins(joint))


def band_of(name: str, values: Sequence[Sequence[float]] | Tensor) -> Band:
    """A band over the first dimension; seeds that stopped early cut it to the shortest.

    Examples:
        >>> band_of("ECE", [[1.0, 2.0], [3.0, 2.0, 9.0]])
        Band(name='ECE', mean=[2.0, 2.0], std=[1.0, 0.0])
    """
    shortest = min(len(row) for row in values)
    rows = torch.stack([torch.as_tensor(row, dtype=torch.float64)[:shortest] for row in values])
    return Band(name, rows.mean(dim=0).tolist(), rows.std(dim=0, correction=0).tolist())


PREPARE: dict[str, Callable[..., Any]] = {
    "gap": prepare_gap,
    "agreement": prepare_agreement_over_training,
    "strengths": prepare_strengths_over_training,
    "class-smoothing": prepare_class_smoothing,
    "superclasses": prepare_superclass_panel,
    "l2": prepare_l2_panel,
    "reliability": prepare_reliability_panel,
}
"""By drawing: from the runs of a panel to its numbers."""
PREPARE_STUDY: dict[str, Callable[[Sequence[dict[str, Any]]], list[Any]]] = {
    "sweep": prepare_sweep,
    "boundary": prepare_boundary,
}
"""By drawing: from records of draws to panels."""
