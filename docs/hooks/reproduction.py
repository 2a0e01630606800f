"""Fills the reproduction page from the paper's tables and figures as data, and from what is in ``results/paper``."""

import csv
import json
from pathlib import Path
from typing import Any

from metacal.experiments import EXHIBITS
from metacal.runs.paper import Exhibit

RESULTS = Path(__file__).parents[2] / "results" / "paper"
MARK = "<!-- reproduction -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return markdown.replace(MARK, reproduction()) if MARK in markdown else markdown


def reproduction() -> str:
    """A section for each table and figure: published, ours, command, status."""
    ordered = sorted(EXHIBITS.values(), key=lambda exhibit: (exhibit.kind != "table", int(exhibit.number or 99)))
    return "\n\n".join(section(exhibit) for exhibit in ordered)


def section(exhibit: Exhibit) -> str:
    """What one table or figure is, how to make it, and what was measured."""
    lines = [f"## {exhibit.heading}", "", f"The paper's claim: {exhibit.claim}", ""]
    runs = len(exhibit.specs())
    cost = f"{runs} runs in full" if runs else "minutes on any machine"
    lines += [f"`metacal run {exhibit.name}` ({cost})", ""]
    measured = sorted(RESULTS.glob(f"*/{exhibit.name}.json"))
    if not measured:
        return "\n".join([*lines, "**Not measured here yet.**"])
    for path in measured:
        about = json.loads((path.parent / "about.json").read_text(encoding="utf-8"))
        seeds = ", ".join(str(seed) for seed in about["seeds"])
        by = f"`{about['command']}`, preset {about['preset']}" + (f", seeds {seeds}" if seeds else "")
        lines += [f"**Measured** with {by}: `results/paper/{path.parent.name}/`.", ""]
        lines += table(path.with_suffix(".csv")) if path.with_suffix(".csv").exists() else picture(path)
    return "\n".join(lines)


def table(path: Path) -> list[str]:
    """Ours and published, cell by cell, for what was measured."""
    lines = ["| row | measure | method | ours | published |", "|---|---|---|---|---|"]
    with path.open(encoding="utf-8", newline="") as file:
        for cell in csv.DictReader(file):
            if cell["mean"]:
                ours = f"{float(cell['mean']):.2f}" + (f" ± {float(cell['std']):.2f}" if cell["std"] else "")
                theirs = cell["published_mean"] and f"{float(cell['published_mean']):.2f}"
                spread = cell["published_std"] and f" ± {float(cell['published_std']):.2f}"
                label = cell["method"].replace("|", "\\|")
                lines.append(f"| {cell['row']} | {cell['metric']} | {label} | {ours} | {theirs}{spread} |")
    return [*lines, ""]


def picture(path: Path) -> list[str]:
    """The drawing beside the numbers, where it is kept with the documentation."""
    drawn = Path(__file__).parents[1] / "figures" / f"{path.parent.name}-{path.stem}.svg"
    return [f"![{path.stem}](figures/{drawn.name})", ""] if drawn.exists() else []
