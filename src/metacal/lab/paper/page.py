"""Tables and figures of the paper: from the store to numbers, files, and one page of ours beside the published."""

import base64
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metacal.files import write_json
from metacal.lab.paper.exhibits import Plan
from metacal.lab.paper.plot_figures import image_of, plot_figure
from metacal.lab.paper.prepare_figures import FigureData, prepare_figure
from metacal.lab.paper.prepare_tables import Cell, TableData, best_of, metric_name, prepare_table
from metacal.lab.paper.simulated import DrawStore, prepare_study_table
from metacal.lab.paper.table_formats import write_table
from metacal.lab.training.environment import provenance
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.page import render
from metacal.reporting.style import FORMATS, save_figure


class PageCell(NamedTuple):
    """A cell as the page shows it: ours, and what was published with the difference where the two can be compared."""

    ours: str
    published: str
    is_best: bool


def prepare_exhibit(plan: Plan, store: RunStore) -> TableData | FigureData:
    """Gather what the store has of a table or figure."""
    if plan.exhibit.kind == "figure":
        return prepare_figure(plan, store)
    return prepare_study_table(plan, store.root) if plan.draws else prepare_table(plan, store)


def write_exhibits(prepared: Sequence[TableData | FigureData], folder: Path) -> None:
    """Write tables as Markdown, LaTeX, CSV and JSON, figures as PNG, SVG and JSON."""
    for data in prepared:
        if isinstance(data, TableData):
            write_table(data, folder)
            continue
        write_json(folder / f"{data.name}.json", data.as_dict())
        for suffix in FORMATS:
            if (figure := plot_figure(data)) is not None:
                save_figure(figure, folder / f"{data.name}.{suffix}")


def render_paper_page(prepared: Sequence[TableData | FigureData], title: str, version: str = "") -> str:
    """The page's HTML: no script, no request, all text from data escaped."""
    return render("paper.html.j2", title=title, exhibits=[_exhibit(data) for data in prepared], version=version)


def _exhibit(data: TableData | FigureData) -> dict[str, Any]:
    shared = {key: getattr(data, key) for key in ("name", "title", "claim", "note", "command", "missing")}
    if isinstance(data, FigureData):
        image = image_of(data, "svg")
        encoded = None if image is None else base64.b64encode(image).decode()
        return {**shared, "image": encoded, "is_table": False}
    rows = [{"row": line[0].row, "metric": metric_name(line[0].metric), "cells": _cells(line)} for line in data.cells]
    return {**shared, "columns": data.columns, "rows": rows, "ranks": data.rank_lines, "is_table": True}


def _cells(line: tuple[Cell, ...]) -> list[PageCell]:
    best = best_of(line)
    return [PageCell(cell.text(), cell.published_text(), cell.column in best) for cell in line]


def prepare_provenance(command: Sequence[str], plans: Iterable[Plan], store: RunStore) -> dict[str, Any]:
    """Plain values for ``about.json``: what was run, with which versions, where, and how long all of it trained.

    Runs and draws that are not complete are left out. Date and commit are those of now; a run that knows the commit it
    was made at says it.
    """
    plans, kept = list(plans), DrawStore(store.root)
    draws = list(dict.fromkeys(draw for plan in plans for draw in plan.draws))
    drawn = [kept.read(draw).get("seconds", 0.0) for draw in draws if kept.has(draw)]
    runs = []
    for spec in {spec.hash: spec for plan in plans for spec in plan.specs}.values():
        folder = store.folder(spec)
        if folder.is_complete:
            seconds = round(folder.read_scores()["train_seconds"], 3)
            run = {"run": spec.title, "hash": spec.hash, "seed": spec.seed, "train_seconds": seconds}
            begun = folder.read_environment().get("commit")
            runs.append(run | {"commit": begun} if begun else run)
    return {
        **provenance(shlex.join(command)),
        "scale": plans[0].scale,
        "seeds": sorted({*(run["seed"] for run in runs), *(draw.seed for draw in draws)}),
        "train_seconds": round(sum(run["train_seconds"] for run in runs) + sum(drawn), 3),
        "draws": len(drawn),
        "runs": runs,
    }
