"""The paper's tables and figures beside what was measured of them, from ``results/paper``."""

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from metacal.lab.cli.run import in_order
from metacal.lab.paper import EXHIBITS
from metacal.lab.paper.exhibits import Exhibit, published_figures
from metacal.lab.paper.tables import metric_name

RANK = "average rank"
SETTINGS = {"as published": "published setting", "not in the paper": "settings of our own"}
BYDATE = "20 Newsgroups is the bydate edition here: 18,846 documents instead of the paper's 19,997."


class Cell(NamedTuple):
    """A figure of a table."""

    metric: str
    row: str
    method: str
    text: str


@dataclass(frozen=True)
class Reproduction:
    """What was measured of the paper.

    Attributes:
        results: a folder for each command that was run, with its tables and what it was run on.
        figures: drawings, named by the folder and the figure.
        verdicts: by exhibit, whether the paper's claim holds in what was measured, and why: our judgement.
    """

    results: Path
    figures: Path
    verdicts: Mapping[str, Mapping[str, str]]

    def page(self) -> str:
        """All at a glance, the commands that were run, then a section for each table and figure."""
        ordered = in_order(EXHIBITS.values())
        return "\n\n".join([self.overview(ordered), self.commands(), *(self.section(each) for each in ordered)])

    def overview(self, exhibits: list[Exhibit]) -> str:
        """A line for each: the command that makes it, how far it has been made, and whether its claim holds there."""
        lines = ["| | command | measured | does the claim hold there? |", "|---|---|---|---|"]
        for exhibit in exhibits:
            link = f"[{exhibit.heading}](#{anchor(exhibit.heading)})"
            holds = self.verdicts.get(exhibit.name, {}).get("holds", "")
            lines.append(f"| {link} | `metacal run {exhibit.name}` | {self.status(exhibit)} | {holds} |")
        return "\n".join(lines)

    def commands(self) -> str:
        """What was run for every folder of results, with what and for how long."""
        lines = ["## What was run", "", "| `results/paper/` | command | seeds | training time | date, torch |"]
        lines += ["|---|---|---|---|---|"]
        for path in sorted(self.results.glob("*/about.json")):
            about = json.loads(path.read_text(encoding="utf-8"))
            seeds = ", ".join(str(seed) for seed in about["seeds"])
            hours = f"{about['train_seconds'] / 3600:.1f} h" if about.get("train_seconds") else ""
            made = f"{about['date']}, {about['torch']}"
            lines.append(f"| {path.parent.name} | `{about['command']}` | {seeds} | {hours} | {made} |")
        return "\n".join(lines)

    def status(self, exhibit: Exhibit) -> str:
        """How many of the cells were measured and in which setting."""
        found = []
        for path in self.measured(exhibit):
            scale = json.loads((path.parent / "about.json").read_text(encoding="utf-8"))["scale"]
            cells = filled(path.with_suffix(".csv"))
            settings = {SETTINGS.get(cell["setting"], f"{scale} scale") for cell in cells}
            where = "sizes of our own" if exhibit.sizes else ", ".join(sorted(settings))
            found.append(f"{f'{len(cells)} cells' if cells else 'drawn'}, {where or f'{scale} scale'}")
        return "; ".join(found) or "not yet"

    def measured(self, exhibit: Exhibit) -> list[Path]:
        """The files of what was measured of it."""
        return sorted(self.results.glob(f"*/{exhibit.name}.json"))

    def section(self, exhibit: Exhibit) -> str:
        """What one table or figure is, how to make it, what was measured, and what was published."""
        claim = f"The paper's claim: {exhibit.claim}" if exhibit.number else "Not in the paper."
        lines = [f"## {exhibit.heading}", "", claim, "", f"`metacal run {exhibit.name}` ({exhibit.cost})", ""]
        for path in self.measured(exhibit):
            lines += [f"**Measured**, `results/paper/{path.parent.name}/`:", "", *self.ours(path)]
        verdict = self.verdicts.get(exhibit.name)
        if verdict is not None:
            lines += [f"**Does the claim hold there? {verdict['holds'].capitalize()}.** {verdict['why']}", ""]
        if not self.measured(exhibit):
            lines += ["**Not measured here yet.**", ""]
        return "\n".join([*lines, *published(exhibit)]).rstrip()

    def ours(self, path: Path) -> list[str]:
        """The table's cells with the published figures below them, or the drawing."""
        if path.with_suffix(".csv").exists():
            return [*tables([cell for line in filled(path.with_suffix(".csv")) for cell in both(line)]), *sources(path)]
        drawn = self.figures / f"{path.parent.name}-{path.stem}.svg"
        return [f"![{path.stem}](figures/{drawn.name})", ""] if drawn.exists() else []


def anchor(heading: str) -> str:
    """What MkDocs calls a heading: ``table-1-test-ece`` for "Table 1: Test ECE"."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def sources(path: Path) -> list[str]:
    """Which files the runs of a table read, where its note says so, and what that means for 20 Newsgroups."""
    said = re.search(r"\bData: .*", json.loads(path.read_text(encoding="utf-8")).get("note", ""))
    if said is None:
        return []
    return [f"{said[0]} {BYDATE}" if "20news-bydate" in said[0] else said[0], ""]


def filled(path: Path) -> list[dict[str, str]]:
    """The cells of a table that have a figure of ours."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [cell for cell in csv.DictReader(file) if cell["mean"]]


def both(line: dict[str, str]) -> list[Cell]:
    """Ours, with the number of its seeds, and what was published."""
    found = figure(float(line["mean"]), float(line["std"]) if line["std"] else None)
    seeds = f" ({line['seeds']})" if line.get("seeds") else ""
    cells = [Cell(line["metric"], f"{line['row']}, ours (seeds)", line["method"], found + seeds)]
    if line["published_mean"]:
        said = figure(float(line["published_mean"]), float(line["published_std"]) if line["published_std"] else None)
        cells.append(Cell(line["metric"], f"{line['row']}, published", line["method"], said))
    if line.get("paired_difference"):
        half = line["paired_half_interval"]
        found = figure(float(line["paired_difference"]), float(half) if half else None)
        cells.append(Cell(line["metric"], f"{line['row']}, minus the baseline (95 %)", line["method"], found))
    return cells


def published(exhibit: Exhibit) -> list[str]:
    """Everything that the paper has in this table, behind a line that opens it."""
    cells = [
        Cell(metric, f"{dataset} {model}".strip(), method, figure(value.mean, value.std))
        for (label, dataset, model, method, metric), value in published_figures().items()
        if label == exhibit.label and exhibit.kind == "table" and dataset != RANK
    ]
    return ['??? note "Published"', "", *(f"    {line}" for line in tables(cells))] if cells else []


def tables(cells: list[Cell]) -> list[str]:
    """For each measure a table of rows by methods."""
    lines = []
    for metric in dict.fromkeys(cell.metric for cell in cells):
        of_metric = [cell for cell in cells if cell.metric == metric]
        methods = list(dict.fromkeys(cell.method for cell in of_metric))
        lines += ["| " + " | ".join([metric_name(metric), *(method.replace("|", "\\|") for method in methods)]) + " |"]
        lines += ["|---" * (len(methods) + 1) + "|"]
        for row in dict.fromkeys(cell.row for cell in of_metric):
            texts = {cell.method: cell.text for cell in of_metric if cell.row == row}
            lines.append("| " + " | ".join([row, *(texts.get(method, "") for method in methods)]) + " |")
        lines.append("")
    return lines


def figure(mean: float, std: float | None) -> str:
    """Mean and standard deviation, as far as they are there."""
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")
