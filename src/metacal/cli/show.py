"""``metacal show``: what a table will run, what is done, what it will cost here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from metacal.runs.paper import PaperTable
    from metacal.runs.run_store import RunStore

STORE = typer.Option("--store", metavar="DIR", help="Folder of all runs.")


def show(
    name: Annotated[str, typer.Argument(help="A table, as `metacal ls` lists them.")],
    preset: Annotated[str, typer.Option(help="full, cpu or smoke.")] = "full",
    store: Annotated[Path, STORE] = Path("runs"),
) -> None:
    """Say what a table is, what it runs, and how far that is.

    Example: [bold]metacal show main-ece --preset cpu[/]
    """
    from metacal.cli.selection import find_tables
    from metacal.runs.run_store import RunStore

    for table in find_tables(name):
        print_table(table, RunStore(store), preset)


def print_table(table: "PaperTable", runs: "RunStore", preset: str) -> None:
    """Print one table's facts."""
    specs = table.specs(preset)
    states = [runs.state(spec) for spec in specs]
    done = [
        runs.folder(spec).read_scores()["train_seconds"]
        for spec, s in zip(specs, states, strict=True)
        if s == "complete"
    ]
    console = Console(highlight=False)
    console.print(f"[bold]Table {table.number}: {table.title}[/]  ({table.name})")
    console.print(f"The paper's claim: {table.claim}")
    console.print(f"Rows: {', '.join(row.name for row in table.rows)}")
    console.print(f"Methods: {escape(', '.join(column.label for column in table.columns))}")
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "begun", "missing"))
    console.print(f"{len(specs)} runs under the {preset} preset: {counts}.")
    if done and len(done) < len(specs):
        left = sum(done) / len(done) * (len(specs) - len(done))
        console.print(f"At {sum(done) / len(done):.0f} s a run so far, the rest takes about {left / 60:.0f} minutes.")
    console.print(f"Make it: metacal run {table.name} --preset {preset}")
