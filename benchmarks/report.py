"""What a benchmark found: rows, targets met or missed; printed as tables, saved with where they come from."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from metacal.files import read_json, write_json
from metacal.runs.environment import provenance

STARTED = time.perf_counter()
BUSY = 0.05
"""Share of the machine in other hands from which figures come with a warning."""

Cell = str | int | float | None
Row = dict[str, Cell]


@dataclass(frozen=True)
class Target:
    """A figure and the bound it should keep.

    Attributes:
        name: what was measured.
        value: the figure.
        bound: what it should reach.
        at_least: whether the bound is a floor (else a ceiling).
    """

    name: str
    value: float
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        """Whether the figure keeps its bound; a NaN does not."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def sentence(self) -> str:
        """One line that says what was asked, what was found and whether that is good enough."""
        side = "at least" if self.at_least else "at most"
        verdict = "[green]met[/]" if self.is_met else "[bold red]MISSED[/]"
        return f"{verdict}  {self.name}: {self.value:.3g} (target: {side} {self.bound:g})"


@dataclass(frozen=True)
class Part:
    """One part of a benchmark.

    Attributes:
        title: what was measured, on what.
        rows: one dictionary a row, all with the same keys.
        targets: figures with bounds.
        notes: sentences that a reader of the figures needs.
        others_share: share of the machine that other processes used meanwhile.
    """

    title: str
    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    notes: Sequence[str] = ()
    others_share: float = 0.0


def show(part: Part, console: Console) -> None:
    """Print a part as a table, its notes and its targets."""
    console.print(part.title, style="bold")
    table = Table()
    for column in part.rows[0] if part.rows else ():
        table.add_column(column, justify="left" if isinstance(part.rows[0][column], str) else "right")
    for row in part.rows:
        table.add_row(*map(_text, row.values()))
    console.print(table)
    for note in part.notes:
        console.print(note, style="dim")
    if part.others_share > BUSY:
        console.print(
            f"Other processes used {part.others_share:.0%} of this machine meanwhile: measure again when it is quiet.",
            style="bold yellow",
        )
    for target in part.targets:
        console.print(target.sentence())
    console.print()


def save(path: Path, parts: dict[str, Part], about: dict[str, object]) -> None:
    """Write parts and what they were measured with as JSON."""
    measured = {
        name: asdict(part) | {"targets": [asdict(target) | {"is_met": target.is_met} for target in part.targets]}
        for name, part in parts.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "parts": measured}, indent=2, allow_nan=True) + "\n")


def publish(name: str, parts: dict[str, Part]) -> None:
    """Show the parts of a benchmark, save them under its name, and exit with 1 if a target was missed."""
    console = Console()
    for part in parts.values():
        show(part, console)
    command = f"python -m benchmarks.{name} {' '.join(sys.argv[1:])}".strip()
    save(Path("results/benchmarks") / f"{name}.json", parts, describe_run(command))
    sys.exit(0 if all(target.is_met for part in parts.values() for target in part.targets) else 1)


def save_table(path: Path, command: str, table: str, **made_of: object) -> None:
    """Write a table as Markdown, with the command that made it, and what else is known of it beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    heading = f"Made by `{command}` with torch {torch.__version__}."
    path.write_text(f"{heading}\n\n{table.strip()}\n", encoding="utf-8")
    save_about(path, command, **made_of)


def save_about(path: Path, command: str, **made_of: object) -> None:
    """Say in the ``about.json`` beside a table where it comes from, under its name.

    Args:
        path: of the table.
        command: that made it.
        made_of: the seeds, and how long runs took that the command only gathered.
    """
    beside = path.with_name("about.json")
    known = read_json(beside) if beside.exists() else {}
    write_json(beside, known | {path.stem: describe_run(command) | made_of})


def describe_run(command: str, versions: Mapping[str, str] | None = None) -> dict[str, object]:
    """Command, date, commit, versions, machine and wall time, to be kept with the figures.

    Args:
        command: that measured them.
        versions: of other packages that matter.
    """
    return {
        **provenance(command, Path(__file__).parent),
        **(versions or {}),
        "torch_threads": torch.get_num_threads(),
        "wall_seconds": round(time.perf_counter() - STARTED, 1),
    }


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
