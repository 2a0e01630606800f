"""Fills the reproduction page from the paper's tables and figures as data, and from what is in ``results/paper``."""

import csv
import json
import re
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
    """What there is of each table and figure at a glance, then a section for each: published, ours, command."""
    ordered = sorted(EXHIBITS.values(), key=lambda exhibit: (exhibit.kind != "table", int(exhibit.number or 99)))
    return "\n\n".join([overview(ordered), *(section(exhibit) for exhibit in ordered)])


def overview(exhibits: list[Exhibit]) -> str:
    """A line for each: the command that makes it, and how far it has been made."""
    lines = ["| | command | measured |", "|---|---|---|"]
    for exhibit in exhibits:
        link = f"[{exhibit.heading}](#{anchor(exhibit.heading)})"
        lines.append(f"| {link} | `metacal run {exhibit.name}` | {status(exhibit)} |")
    return "\n".join(lines)


def anchor(heading: str) -> str:
    """What MkDocs calls a heading.

    Examples:
        >>> anchor("Table 1: Test ECE (ours)")
        'table-1-test-ece-ours'
    """
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def status(exhibit: Exhibit) -> str:
    """How many of the cells were measured and in which setting."""
    found = []
    for path in measured(exhibit):
        about = json.loads((path.parent / "about.json").read_text(encoding="utf-8"))
        cells = filled(path.with_suffix(".csv"))
        many = f"{len(cells)} cells" if cells else "drawn"
        settings = {"published setting" if cell["setting"] == "as published" else about["preset"] for cell in cells}
        found.append(f"{many}, {' and '.join(sorted(settings)) or about['preset']}")
    return "; ".join(found) or "not yet"


def measured(exhibit: Exhibit) -> list[Path]:
    """The files of what was measured of it."""
    return sorted(RESULTS.glob(f"*/{exhibit.name}.json"))


def section(exhibit: Exhibit) -> str:
    """What one table or figure is, how to make it, and what was measured."""
    lines = [f"## {exhibit.heading}", "", f"The paper's claim: {exhibit.claim}", ""] if exhibit.number else []
    lines = lines or [f"## {exhibit.heading}", "", "Not in the paper.", ""]
    runs = len(exhibit.specs())
    cost = f"{runs} runs in full" if runs else "minutes on any machine"
    lines += [f"`metacal run {exhibit.name}` ({cost})", ""]
    for path in measured(exhibit):
        about = json.loads((path.parent / "about.json").read_text(encoding="utf-8"))
        seeds = ", ".join(str(seed) for seed in about["seeds"])
        by = f"`{about['command']}`, preset {about['preset']}" + (f", seeds {seeds}" if seeds else "")
        lines += [f"**Measured** with {by}: `results/paper/{path.parent.name}/`.", ""]
        lines += tables(path.with_suffix(".csv")) if path.with_suffix(".csv").exists() else picture(path)
    return "\n".join(lines if measured(exhibit) else [*lines, "**Not measured here yet.**"])


def filled(path: Path) -> list[dict[str, str]]:
    """The cells of a table that have a figure of ours."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [cell for cell in csv.DictReader(file) if cell["mean"]]


def tables(path: Path) -> list[str]:
    """For each measure, rows by methods: ours, and what was published below it."""
    lines = []
    for metric in dict.fromkeys(cell["metric"] for cell in filled(path)):
        cells = [cell for cell in filled(path) if cell["metric"] == metric]
        methods = list(dict.fromkeys(cell["method"] for cell in cells))
        said = metric.removesuffix("_percent").replace("_", " ").replace("ece", "ECE")
        unit = ", %" if metric.endswith("_percent") else ""
        lines += ["| " + " | ".join([f"{said}{unit}", *(method.replace("|", "\\|") for method in methods)]) + " |"]
        lines += ["|---" * (len(methods) + 1) + "|"]
        for row in dict.fromkeys(cell["row"] for cell in cells):
            of_row = {cell["method"]: cell for cell in cells if cell["row"] == row}
            for prefix, who in (("", "ours"), ("published_", "published")):
                figures = [figure(of_row.get(method, {}), prefix) for method in methods]
                if any(figures):
                    lines.append("| " + " | ".join([f"{row}, {who}", *figures]) + " |")
        lines.append("")
    return lines


def figure(cell: dict[str, str], prefix: str) -> str:
    """Mean and standard deviation, as far as they are there."""
    mean, std = cell.get(f"{prefix}mean"), cell.get(f"{prefix}std")
    return (f"{float(mean):.2f}" + (f" ± {float(std):.2f}" if std else "")) if mean else ""


def picture(path: Path) -> list[str]:
    """The drawing beside the numbers, where it is kept with the documentation."""
    drawn = Path(__file__).parents[1] / "figures" / f"{path.parent.name}-{path.stem}.svg"
    return [f"![{path.stem}](figures/{drawn.name})", ""] if drawn.exists() else []
