"""`prepare_figure` and `plot_figure`: a figure of the paper, from the store to a drawing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import PaperFigure, SimulatedStudy
from metacal.lab.paper.figures import agreement, class_smoothing, gap, l2, reliability, simulated, strengths
from metacal.lab.paper.figures import superclasses as superclass_figure
from metacal.lab.paper.figures.panels import Panel
from metacal.lab.paper.table import setting_note, setting_title
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.style import OVER


class Drawing(NamedTuple):
    """How a figure is made: numbers first, then the drawing."""

    prepare: Callable[[Sequence[Panel], Mapping[str, Any]], list[Any]]
    plot: Callable[[Any], Figure | None]


DRAWINGS: dict[str, Drawing] = {
    "gap": Drawing(gap.prepare_gap, gap.plot_gap),
    "agreement": Drawing(agreement.prepare_agreement_over_training, agreement.plot_agreement_over_training),
    "strengths": Drawing(strengths.prepare_strengths_over_training, strengths.plot_strengths_over_training),
    "class-smoothing": Drawing(class_smoothing.prepare_class_smoothing, class_smoothing.plot_class_smoothing),
    "superclasses": Drawing(superclass_figure.prepare_superclass_panels, superclass_figure.plot_superclass_panels),
    "l2": Drawing(l2.prepare_l2_panels, l2.plot_l2_panels),
    "reliability": Drawing(reliability.prepare_reliability_panels, reliability.plot_reliability_panels),
}
STUDY_PLOTS: dict[str, tuple[Callable[[Sequence[dict[str, Any]]], list[Any]], Callable[[Any], Figure]]] = {
    "sweep": (simulated.prepare_sweep, simulated.plot_sweep),
    "boundary": (simulated.prepare_boundary, simulated.plot_boundary),
}


@dataclass(frozen=True)
class FigureData:
    """The numbers of a figure.

    Attributes:
        name: of the figure.
        title: with the setting in it, if it is not the published one.
        claim: what the paper concludes from it.
        note: what a reader must know before comparing.
        panels: what the drawing's ``prepare`` gives; empty where no run is complete.
        done: runs (or draws) that are behind it.
        wanted: how many there should be.
        plot: draws the panels.
        setting: what is not as published, such as ``cpu scale``; empty where nothing is.
        command: fills what is missing.
    """

    name: str
    title: str
    claim: str
    note: str
    panels: list[Any]
    done: int
    wanted: int
    plot: Callable[[Any], Figure | None]
    setting: str = ""
    command: str = ""

    @property
    def missing(self) -> int:
        """How many runs (or draws) are still to be done."""
        return self.wanted - self.done

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        kept = {key: getattr(self, key) for key in ("name", "title", "claim", "note", "done", "wanted", "command")}
        return {**kept, "panels": [asdict(panel) for panel in self.panels]}


def prepare_figure(
    figure: PaperFigure | SimulatedStudy,
    store: RunStore,
    scale: str = "full",
    overrides: Mapping[str, Any] | None = None,
) -> FigureData:
    """Gather what the store has of a figure."""
    if isinstance(figure, SimulatedStudy):
        return _prepare_study(figure, store, scale)
    drawing = DRAWINGS[figure.drawing]
    panels, done = [], 0
    for row in figure.rows:
        for column in figure.columns:
            specs = (figure.spec(row, column, seed, scale, overrides) for seed in figure.seeds)
            folders = tuple(store.folder(spec) for spec in specs if spec is not None)
            complete = tuple(folder for folder in folders if folder.is_complete)
            done += len(complete)
            if complete:
                panels.append(Panel(f"{row.dataset} {row.model}", column.label, complete))
    setting = figure.setting(scale, overrides)
    return FigureData(
        figure.name,
        setting_title(figure.heading, setting),
        figure.claim,
        setting_note(setting),
        drawing.prepare(panels, figure.options) if panels else [],
        done,
        len(figure.rows) * len(figure.columns) * len(figure.seeds),
        drawing.plot,
        setting,
    )


def _prepare_study(study: SimulatedStudy, store: RunStore, scale: str) -> FigureData:
    draws, kept = study.draws(scale), DrawStore(store.root)
    prepare, plot = STUDY_PLOTS[study.shows]
    records = [kept.read(draw) for draw in draws if kept.has(draw)]
    note = f"ECE of {draws[0].test_points:,} fresh points."
    panels = prepare(records) if records else []
    setting = study.setting(scale)
    title = setting_title(study.heading, setting)
    return FigureData(study.name, title, study.claim, note, panels, len(records), len(draws), plot, setting)


def plot_figure(data: FigureData) -> Figure | None:
    """The drawing; None where there is nothing to draw. One that is not of the published setting says so itself."""
    figure = data.plot(data.panels) if data.panels else None
    if figure is not None and data.setting:
        figure.suptitle(f"Not the published setting: {data.setting}", x=0.01, ha="left", fontsize=8, color=OVER)
    return figure
