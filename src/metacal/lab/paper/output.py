"""Writes tables and figures to files and to one page, with the published figures and provenance."""

import base64
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metacal.files import write_json, write_text
from metacal.lab.paper.exhibits import Plan
from metacal.lab.paper.figures import FigureData, image_of, plot_figure, prepare_figure
from metacal.lab.paper.simulated import prepare_study_table, read_draws
from metacal.lab.paper.tables import TableData, best_of, csv_table, markdown_table, metric_name, prepare_table
from metacal.lab.training.environment import provenance
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.page import render
from metacal.reporting.style import FORMATS, save_figure


def prepare_exhibit(plan: Plan, store: RunStore) -> TableData | FigureData:
    """Prepare a table or figure from the runs in the store."""
    if plan.exhibit.kind == "figure":
        return prepare_figure(plan, store)
    return prepare_study_table(plan, store.root) if plan.draws else prepare_table(plan, store)


def write_exhibits(prepared: Sequence[TableData | FigureData], folder: Path) -> None:
    """Write tables as Markdown, CSV and JSON, figures as PNG, SVG and JSON."""
    for data in prepared:
        write_json(folder / f"{data.name}.json", asdict(data))
        if isinstance(data, TableData):
            write_text(folder / f"{data.name}.md", markdown_table(data))
            write_text(folder / f"{data.name}.csv", csv_table(data))
            continue
        for suffix in FORMATS:
            if (figure := plot_figure(data)) is not None:
                save_figure(figure, folder / f"{data.name}.{suffix}")


def render_paper_page(prepared: Sequence[TableData | FigureData], title: str, version: str = "") -> str:
    """Return the HTML of the page: no scripts, no requests, and all text from data is escaped."""
    images = {data.name: image_of(data, "svg") for data in prepared if isinstance(data, FigureData)}
    encoded = {name: base64.b64encode(image).decode() for name, image in images.items() if image is not None}
    words = {"best_of": best_of, "metric_name": metric_name, "version": version}
    return render("paper.html.j2", title=title, exhibits=prepared, images=encoded, **words)


def prepare_provenance(command: Sequence[str], plans: Sequence[Plan], store: RunStore) -> dict[str, Any]:
    """Return plain values for ``about.json``: command, versions, machine, complete runs and draws, and training time.

    Date and commit are the current ones; each run also has the commit it was made at, if known.
    """
    draws = list(dict.fromkeys(draw for plan in plans for draw in plan.draws))
    drawn = [record.get("seconds", 0.0) for record in read_draws(store.root, draws).values()]
    runs = []
    for spec in {spec.hash: spec for plan in plans for spec in plan.specs}.values():
        folder = store.folder(spec)
        if folder.is_complete:
            seconds = round(folder.read_scores()["train_seconds"], 3)
            run = {"run": spec.title, "hash": spec.hash, "seed": spec.seed, "train_seconds": seconds}
            commit = folder.read_environment().get("commit")
            runs.append(run | {"commit": commit} if commit else run)
    return {
        **provenance(shlex.join(command)),
        "scale": plans[0].scale,
        "seeds": sorted({*(run["seed"] for run in runs), *(draw.seed for draw in draws)}),
        "train_seconds": round(sum(run["train_seconds"] for run in runs) + sum(drawn), 3),
        "draws": len(drawn),
        "runs": runs,
    }
