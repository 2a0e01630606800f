"""Tables and figures of the paper as files and on one page, ours beside the published, with where they come from."""

import base64
import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metacal.files import write_json, write_text
from metacal.lab.paper.exhibits import Plan, Published
from metacal.lab.paper.plot_figures import image_of, plot_figure
from metacal.lab.paper.prepare_figures import FigureData, prepare_figure
from metacal.lab.paper.prepare_tables import Cell, TableData, best_of, metric_name, prepare_table
from metacal.lab.paper.simulated import DrawStore, prepare_study_table
from metacal.lab.training.environment import provenance
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.page import render
from metacal.reporting.style import FORMATS, save_figure

PUBLISHED = "published, and by how much ours is above it where both are of the same setting."
OURS = ("row", "method", "metric", "mean", "std", "seeds", "temperature")
LATEX = {
    **{special: f"\\{special}" for special in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "−": "$-$", "<": "$<$", ">": "$>$"},
}


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
        write_json(folder / f"{data.name}.json", data.as_dict())
        if isinstance(data, TableData):
            write_text(folder / f"{data.name}.md", markdown_table(data))
            write_text(folder / f"{data.name}.tex", latex_table(data))
            write_text(folder / f"{data.name}.csv", csv_table(data))
            continue
        for suffix in FORMATS:
            if (figure := plot_figure(data)) is not None:
                save_figure(figure, folder / f"{data.name}.{suffix}")


def markdown_table(data: TableData) -> str:
    """GitHub's tables: ours with the published figure in brackets, the best in bold."""
    head = ["", "metric", *data.columns]
    lines = [f"**{data.title}**", "", data.note, "", _pipes(head), _pipes(["---"] * len(head))]
    for line in data.cells:
        best = best_of(line)
        shown = [f"**{cell.text()}**" if cell.column in best else cell.text() for cell in line]
        both = [f"{ours} [{cell.published_text()}]" for ours, cell in zip(shown, line, strict=True)]
        lines.append(_pipes([line[0].row, metric_name(line[0].metric), *both]))
    lines += [_pipes([name, "", *ranks]) for name, ranks in data.rank_lines]
    lines += ["", f"In brackets: {PUBLISHED}"]
    if data.missing:
        lines += ["", f"{data.missing} cells lack seeds: `{data.command}` fills them."]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex_table(data: TableData) -> str:
    """A booktabs table, the best in bold; under each line of ours the published one."""
    lines = [
        "\\begin{table}",
        f"\\caption{{{_latex(data.title)}. {_latex(data.note)} In brackets: {_latex(PUBLISHED)}}}",
        f"\\begin{{tabular}}{{ll{'c' * len(data.columns)}}}",
        "\\toprule",
        " & ".join(["", "metric", *map(_latex, data.columns)]) + " \\\\",
        "\\midrule",
    ]
    for line in data.cells:
        best = best_of(line)
        cells = [_latex(cell.text()) for cell in line]
        shown = [f"\\textbf{{{text}}}" if cell.column in best else text for text, cell in zip(cells, line, strict=True)]
        said = [f"[{_latex(cell.published_text())}]" for cell in line]
        lines.append(" & ".join([_latex(line[0].row), _latex(metric_name(line[0].metric)), *shown]) + " \\\\")
        lines.append(" & ".join(["", "", *said]) + " \\\\")
    if data.rank_lines:
        lines += ["\\midrule", *(" & ".join([name, "", *ranks]) + " \\\\" for name, ranks in data.rank_lines)]
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{table}"]
    if data.missing:
        lines.append(f"% {data.missing} cells lack seeds; filled by: {data.command}")
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Text with what is special to LaTeX escaped."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def csv_table(data: TableData) -> str:
    """One line a cell; no difference where ours is not of the published setting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*OURS, *(f"published_{name}" for name in Published._fields), "difference", "setting"])
    for cell in (cell for line in data.cells for cell in line):
        said = cell.published or Published(float("nan"), None, None)
        ours = (cell.mean, cell.std, len(cell.values), cell.temperature)
        figures = ("" if v is None or v != v else v for v in (*ours, *said, cell.difference))
        writer.writerow([cell.row, cell.column, cell.metric, *figures, cell.setting])
    return text.getvalue()


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


def prepare_provenance(command: Sequence[str], plans: Sequence[Plan], store: RunStore) -> dict[str, Any]:
    """Plain values for ``about.json``: what was run, with which versions, where, and how long all of it trained.

    Runs and draws that are not complete are left out. Date and commit are those of now; a run that knows the commit it
    was made at says it.
    """
    draws = list(dict.fromkeys(draw for plan in plans for draw in plan.draws))
    kept = DrawStore(store.root) if draws else None
    drawn = [kept.read(draw).get("seconds", 0.0) for draw in draws if kept and kept.has(draw)]
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
