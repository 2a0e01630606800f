"""``metacal show``: what a table or figure will run, what is done, what it will cost here."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from metacal.cli.terminal import Console
from metacal.errors import needs

if TYPE_CHECKING:
    from metacal.lab.paper.exhibits import Exhibit
    from metacal.lab.training import RunSpec
    from metacal.lab.training.run_store import RunStore

STORE = typer.Option("--store", metavar="DIR", help="Folder of all runs.")


@needs("lab")
def show(
    name: Annotated[str, typer.Argument(help="A table or figure, as `metacal ls` lists them.")],
    scale: Annotated[str, typer.Option(help="full, cpu or smoke.")] = "full",
    store: Annotated[str, STORE] = "runs",
) -> None:
    """Say what a table or figure is, what it runs, how far that is, and what the rest takes here.

    Example: [bold]metacal show main-ece --scale cpu[/]
    """
    from metacal.lab.cli.exhibits import open_store
    from metacal.lab.cli.selection import find_exhibits

    runs = open_store(store)
    for exhibit in find_exhibits(name):
        show_exhibit(exhibit, scale, store, runs)


def show_exhibit(exhibit: "Exhibit", scale: str, place: str, runs: "RunStore") -> None:
    """Print one of them."""
    from metacal.lab.cli.exhibits import command_of
    from metacal.lab.paper.draw_store import DrawStore

    console, draws = Console(highlight=False), DrawStore(runs.root)
    console.print(f"[bold]{exhibit.heading}[/]  ({exhibit.name})")
    console.print(f"The paper's claim: {exhibit.claim}")
    if exhibit.rows:
        console.print(f"Rows: {', '.join(row.name for row in exhibit.rows)}")
        console.print(f"Methods: {escape(', '.join(column.label for column in exhibit.columns))}")
    specs, wanted = exhibit.specs(scale), exhibit.draws(scale)
    if specs:
        states = [runs.state(spec) for spec in specs]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "begun", "missing"))
        console.print(f"{len(specs)} runs at the {scale} scale: {counts}.")
        missing = [spec for spec, state in zip(specs, states, strict=True) if state != "complete"]
        if missing:
            console.print(time_left(missing, runs))
    if wanted:
        done = sum(draws.has(draw) for draw in wanted)
        console.print(f"{len(wanted)} draws of simulated data: {done} done; a draw takes seconds.")
    console.print(f"Make it: {escape(command_of(exhibit.name, scale=scale, store=place))}", soft_wrap=True)


def time_left(missing: "list[RunSpec]", runs: "RunStore") -> str:
    """What the missing runs take here, one at a time: from runs like them, or else from the size of their models."""
    from metacal.lab.engines.estimate import estimate_seconds

    seconds = estimate_seconds(missing, runs)
    spans = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next((each for each in spans if seconds >= 2 * each[0]), spans[-1])
    span = f"{seconds / size:,.0f} {unit}"
    return f"On this machine, one at a time, the rest takes roughly {span}."
