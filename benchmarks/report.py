"""What a benchmark found: rows, targets met or missed; printed as tables, saved with where they come from."""

import csv
import io
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import OthersMeter, wait_for_quiet
from metacal.files import read_json, write_json, write_text
from metacal.lab.training.environment import provenance

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
        others_share: share of the machine that other processes used meanwhile; None where it does not matter.
    """

    title: str
    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    notes: Sequence[str] = ()
    others_share: float | None = None

    @property
    def warning(self) -> str | None:
        """What has to be said if the machine was not quiet."""
        if self.others_share is None or not self.others_share > BUSY:
            return None
        return f"Other processes used {self.others_share:.0%} of the machine meanwhile."


def measured(measure: Callable[[], Part], wait: float = 0.0) -> Part:
    """A part, with what others used of the machine; measured again, while there is time to wait, if that was much."""
    end = time.monotonic() + wait
    while True:
        wait_for_quiet(end - time.monotonic(), BUSY)
        meter, started = OthersMeter(), time.perf_counter()
        part = replace(measure(), others_share=meter.share())
        took = f"{part.title}: {time.perf_counter() - started:.0f} s"
        Console(stderr=True).print(took, style="dim", highlight=False, markup=False)
        if part.warning is None or time.monotonic() > end:
            return part


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
    if part.warning is not None:
        console.print(f"{part.warning} Measure again when it is quiet.", style="bold yellow")
    for target in part.targets:
        console.print(target.sentence())
    console.print()


def conclude(parts: Mapping[str, Part]) -> int:
    """Show all parts, then the targets that were missed; the exit status."""
    console = Console()
    for part in parts.values():
        show(part, console)
    targets = [target for part in parts.values() for target in part.targets]
    missed = [target for target in targets if not target.is_met]
    console.print(f"{len(missed)} of {len(targets)} targets missed.")
    for target in missed:
        console.print(target.sentence())
    return 1 if missed else 0


def publish(
    name: str,
    parts: Mapping[str, Part],
    versions: Mapping[str, str] | None = None,
    path: Path | None = None,
    *,
    is_whole: bool = True,
) -> NoReturn:
    """Save the parts of a benchmark, show them, and exit with 1 if a target was missed.

    Args:
        name: of its module.
        parts: by name.
        versions: of other packages that matter.
        path: of the file; under its name in ``results/benchmarks`` where it is not given.
        is_whole: whether these are all its parts; some are saved only where a path is given.
    """
    if path is None and not is_whole:
        sys.exit(conclude(parts))
    found = {
        key: asdict(part)
        | {"targets": [asdict(target) | {"is_met": target.is_met} for target in part.targets], "warning": part.warning}
        for key, part in parts.items()
    }
    path = path or Path("results/benchmarks") / f"{name}.json"
    write_json(path, {"about": describe_run(typed(name), versions), "parts": found})
    sys.exit(conclude(parts))


def typed(name: str) -> str:
    """The command of a module here, as it was typed."""
    return shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]])


def save_table(
    path: Path, command: str, table: str, versions: Mapping[str, str] | None = None, **made_of: object
) -> None:
    """Write a table as Markdown, with the command that made it, and as CSV; what else is known of it beside it."""
    write_text(path, f"Made by `{command}` with torch {torch.__version__}.\n\n{table.strip()}\n")
    write_text(path.with_suffix(".csv"), as_csv(table))
    save_about(path, command, versions, **made_of)


def as_csv(markdown: str) -> str:
    """The cells of Markdown tables; of several with the line above each in front of its rows.

    Tables with one heading are one table; where headings differ, each has its own, after an empty line.
    """
    found = re.findall(r"(?:^([^|\n]+)\n\s*)?((?:^\|.*\n?)+)", markdown, re.M)
    tables = [(above, [_cells(line) for line in block.splitlines()]) for above, block in found]
    rows: list[list[str]] = []
    heading: list[str] = []
    for above, (head, _, *body) in tables:
        named = ["table", *head] if len(tables) > 1 else head
        rows += [named] if not rows else [[], named] if head != heading else []
        rows += [[above, *row] for row in body] if len(tables) > 1 else body
        heading = head
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def save_about(path: Path, command: str, versions: Mapping[str, str] | None = None, **made_of: object) -> None:
    """Say in the ``about.json`` beside a table where it comes from, under its name.

    Args:
        path: of the table.
        command: that made it.
        versions: of other packages that matter.
        made_of: the seeds; how long runs took, where the command gathers what others have trained.
    """
    beside = path.with_name("about.json")
    known = read_json(beside) if beside.exists() else {}
    found = describe_run(command, versions) | made_of
    if "train_seconds" in made_of:
        del found["wall_seconds"], found["torch_threads"]  # of the gathering
    write_json(beside, known | {path.stem: found})


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
        "wall_seconds": round(time.perf_counter() - STARTED, 2),
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
