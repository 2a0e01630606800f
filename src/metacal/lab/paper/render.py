"""`prepare_exhibit`: any table or figure of the paper, from the store to numbers; `write_exhibits`: to files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from metacal.files import write_json
from metacal.lab.paper.exhibits import Exhibit, PaperFigure, PaperTable, SimulatedStudy
from metacal.lab.paper.figures import FigureData, plot_figure, prepare_figure
from metacal.lab.paper.simulated_table import prepare_study_table
from metacal.lab.paper.table import TableData, prepare_table
from metacal.lab.paper.table_formats import write_table
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.figure_files import FORMATS, figure_bytes, save_figure
from metacal.reporting.style import house_style


def prepare_exhibit(
    exhibit: Exhibit, store: RunStore, scale: str = "full", overrides: Mapping[str, Any] | None = None
) -> TableData | FigureData:
    """Gather what the store has of a table or figure."""
    if isinstance(exhibit, PaperTable):
        return prepare_table(exhibit, store, scale, overrides)
    if isinstance(exhibit, SimulatedStudy) and exhibit.shows == "table":
        return prepare_study_table(exhibit, store, scale)
    assert isinstance(exhibit, PaperFigure | SimulatedStudy)
    return prepare_figure(exhibit, store, scale, overrides)


def write_exhibits(prepared: Sequence[TableData | FigureData], folder: Path) -> None:
    """Write tables as Markdown, LaTeX, CSV and JSON, figures as PNG, SVG and JSON."""
    for data in prepared:
        if isinstance(data, TableData):
            write_table(data, folder)
            continue
        write_json(folder / f"{data.name}.json", data.as_dict())
        for suffix in FORMATS:
            if (figure := _draw(data)) is not None:
                save_figure(figure, folder / f"{data.name}.{suffix}")


def image_of(data: FigureData, suffix: str) -> bytes | None:
    """A figure as the bytes of an image; None where there is nothing to draw."""
    figure = _draw(data)
    return None if figure is None else figure_bytes(figure, suffix)


def _draw(data: FigureData) -> Figure | None:
    with house_style():
        return plot_figure(data)
