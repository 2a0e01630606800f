"""`prepare_exhibit`: any table or figure of the paper, from the store to numbers; `write_exhibits`: to files."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from matplotlib import rc_context

from metacal.files import write_json, write_whole
from metacal.reporting.paper_figures import FigureData, plot_figure, prepare_figure
from metacal.reporting.paper_table import TableData, prepare_table
from metacal.reporting.simulated_table import prepare_study_table
from metacal.reporting.style import RC
from metacal.reporting.table_formats import write_table
from metacal.runs.paper import Exhibit, PaperFigure, PaperTable, SimulatedStudy
from metacal.runs.run_store import RunStore

FORMATS = ("png", "svg")


def prepare_exhibit(
    exhibit: Exhibit, store: RunStore, preset: str = "full", overrides: Mapping[str, Any] | None = None
) -> TableData | FigureData:
    """Gather what the store has of a table or figure."""
    if isinstance(exhibit, PaperTable):
        return prepare_table(exhibit, store, preset, overrides)
    if isinstance(exhibit, SimulatedStudy) and exhibit.shows == "table":
        return prepare_study_table(exhibit, store, preset)
    assert isinstance(exhibit, PaperFigure | SimulatedStudy)
    return prepare_figure(exhibit, store, preset, overrides)


def write_exhibits(prepared: Sequence[TableData | FigureData], folder: Path) -> None:
    """Write tables as Markdown, LaTeX, CSV and JSON, figures as PNG, SVG and JSON."""
    for data in prepared:
        if isinstance(data, TableData):
            write_table(data, folder)
            continue
        write_json(folder / f"{data.name}.json", data.as_dict())
        for suffix in FORMATS:
            if (image := image_of(data, suffix)) is not None:
                write_whole(folder / f"{data.name}.{suffix}", partial(_write, image))


def _write(image: bytes, file: IO[bytes]) -> None:
    file.write(image)


def image_of(data: FigureData, suffix: str) -> bytes | None:
    """A figure as the bytes of an image; None where there is nothing to draw."""
    with rc_context(RC):
        figure = plot_figure(data)
        if figure is None:
            return None
        held = io.BytesIO()
        figure.savefig(held, format=suffix, metadata={"Date": None} if suffix == "svg" else {"Software": None})
    return held.getvalue()
