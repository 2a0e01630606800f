"""Tables and figures of the paper on the terminal and on a page, each with the command that fills what is missing."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from metacal.cli.options import check_places
from metacal.cli.terminal import Console
from metacal.files import write_json

if TYPE_CHECKING:
    from metacal.lab.paper.figures import FigureData
    from metacal.lab.paper.table import TableData
    from metacal.lab.training.run_store import RunStore

PAGE_TITLE = "Meta-Calibration, measured"
UNSAID = {"scale": "full", "store": "runs"}
"""Options that a command does without, as they are."""
WIDE = 240
"""Columns of a table that goes to a file or another program."""


def command_of(name: str, assignments: Sequence[str] = (), **options: str) -> str:
    """The command that makes an exhibit, or this part of it; options that say nothing new are left out.

    Examples:
        >>> command_of("main-ece", ["epochs=3"], rows="", seeds="0,1", scale="cpu", store="runs")
        'metacal run main-ece epochs=3 --seeds 0,1 --scale cpu'
    """
    told = {key: value for key, value in options.items() if value not in ("", UNSAID.get(key))}
    return shlex.join(["metacal", "run", name, *assignments, *(w for k, v in told.items() for w in (f"--{k}", v))])


def open_store(place: str) -> "RunStore":
    """The store in a folder; runs in it that cannot be used are named."""
    from metacal.lab.training.run_store import RunStore

    runs = RunStore(place)
    others = runs.of_other_versions()
    if others:
        Console(stderr=True).print(
            f"{len(others)} runs in {escape(place)} were written by another version of metacal and are not used, "
            f"{escape(others[0])} for one; `metacal validate` names them.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    return runs


def print_failures(failed: Mapping[str, str]) -> None:
    """Say what went wrong, each thing once."""
    for error in dict.fromkeys(failed.values()):
        Console(stderr=True).print(f"[bold red]failed:[/] {escape(error)}", highlight=False, soft_wrap=True)


def write_paper_page(prepared: "Sequence[TableData | FigureData]", path: Path, title: str = PAGE_TITLE) -> Path:
    """Lay tables and figures on one page."""
    import metacal
    from metacal.files import write_text
    from metacal.lab.paper.page import render_paper_page

    write_text(path, render_paper_page(prepared, title, metacal.__version__))
    return path


def report_exhibits(
    names: Sequence[str],
    output: Path,
    *,
    scale: str = "full",
    store: str = "runs",
    figures: Path | None = None,
    json_file: Path | None = None,
    title: str = PAGE_TITLE,
) -> None:
    """Lay tables and figures of the paper, as far as their runs are done, on one page."""
    from metacal.lab.cli.selection import find_exhibits, narrowed
    from metacal.lab.paper.render import prepare_exhibit, write_exhibits

    check_places(output=output, json=json_file)
    exhibits = narrowed([exhibit for name in names for exhibit in find_exhibits(name)])
    runs = open_store(store)
    prepared = [
        replace(
            prepare_exhibit(exhibit, runs, scale),
            command=command_of(exhibit.name, scale=scale, store=store),
        )
        for exhibit in exhibits
    ]
    write_paper_page(prepared, output, title)
    console = Console()
    console.say(f"{output} ({output.stat().st_size / 1000:,.0f} kB)")
    if figures is not None:
        write_exhibits(prepared, figures)
        console.say(f"{figures} (tables and figures)")
    if json_file is not None:
        write_json(json_file, {data.name: data.as_dict() for data in prepared})
        console.say(f"{json_file} ({json_file.stat().st_size / 1000:,.0f} kB)")


def print_exhibit(data: "TableData | FigureData", output: Path | None) -> None:
    """Draw a table; of a figure, say where it is."""
    from metacal.lab.paper.table import TableData

    if isinstance(data, TableData):
        print_table(data)
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[italic]{escape(data.title)}[/]")
    where = f"-o DIR draws {data.name}.png" if output is None else f"{output / data.name}.png"
    console.print(f"{data.done} of {data.wanted} runs: {escape(where)}" if data.panels else "Nothing to draw yet.")
    if data.missing:
        console.print(f"{data.missing} are missing: {escape(data.command)} fills them.", style="yellow")


def print_table(data: "TableData") -> None:
    """Draw a table: ours, and the published figure under it."""
    from metacal.lab.paper.table import best_of, metric_name

    console = Console() if Console().is_terminal else Console(width=WIDE)
    console.print(f"[italic]{escape(data.title)}[/]", highlight=False, soft_wrap=True)
    drawn = Table()
    drawn.add_column("", overflow="fold", min_width=max(len(w) for line in data.cells for w in line[0].row.split()))
    drawn.add_column("metric", style="dim")
    for column in data.columns:
        drawn.add_column(escape(column), justify="right")
    for line in data.cells:
        best = best_of(line)
        ours = [f"[bold]{cell.text()}[/]" if cell.column in best else cell.text() for cell in line]
        cells = [f"{text}\n[dim]{cell.published_text()}[/]" for text, cell in zip(ours, line, strict=True)]
        drawn.add_row(line[0].row, metric_name(line[0].metric), *cells)
    for name, ranks in data.rank_lines:
        drawn.add_row(name, "", *ranks)
    console.print(drawn)
    about = f"{data.note} Dim: published, and by how much ours is above it where both are of the same setting."
    console.print(escape(about), style="dim", highlight=False)
    if data.missing:
        console.print(
            f"{data.missing} cells lack seeds (-): {escape(data.command)} fills them.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
