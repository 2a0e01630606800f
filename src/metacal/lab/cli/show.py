"""``metacal ls`` and ``metacal show``: tables and figures, their runs, progress and remaining time."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.table import Table

from metacal.cli.terminal import Console
from metacal.lab.cli.run import Output, Scale, Selection, Store, find_exhibits, in_order, narrow, select

if TYPE_CHECKING:
    from metacal.lab.paper.exhibits import Plan
    from metacal.lab.training import RunSpec
    from metacal.lab.training.run_folder import RunStore


def ls() -> None:
    """List the tables and figures of the paper, and some of our own; `metacal run` makes each of them.

    Example: [bold]metacal ls[/], then [bold]metacal show main-ece[/] and [bold]metacal run main-ece --scale smoke[/]
    """
    from metacal.lab.paper import EXHIBITS

    listed = Table(box=SIMPLE)
    for column in ("name", "number", "description", "cost"):
        listed.add_column(column, no_wrap=column != "description")
    for exhibit in in_order(EXHIBITS.values()):
        listed.add_row(exhibit.name, exhibit.tag if exhibit.number else "ours", exhibit.title, exhibit.cost)
    Console().print(listed)


def show(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Tables and figures, as `metacal ls` lists them.")
    ],
    scale: Scale = "full",
    store: Store = "runs",
    output: Output = None,
) -> None:
    """Describe tables and figures: their runs, how many are complete, and how long the rest would take here.

    With -o, write them from the complete runs; nothing is run.

    Example: [bold]metacal show main-ece --scale cpu[/]

    Example: [bold]metacal show main-ece reliability --scale cpu -o page[/]
    """
    exhibits = narrow(exhibit for name in names for exhibit in find_exhibits(name))
    selection = select(exhibits, scale=scale, store=store)
    for plan in selection.plans:
        show_exhibit(plan, selection)
    if output is not None:
        selection.write(selection.prepare(), output)


def show_exhibit(plan: "Plan", selection: Selection) -> None:
    """Print one table or figure."""
    from metacal.lab.paper.simulated import draw_file

    console, runs, exhibit = Console(highlight=False), selection.runs, plan.exhibit
    console.print(f"[bold]{exhibit.heading}[/]  ({exhibit.name})")
    console.print(f"The paper's claim: {exhibit.claim}")
    console.print(f"At full scale: {exhibit.cost}; runs are shared between tables and figures.")
    if exhibit.rows:
        console.print(f"Rows: {', '.join(row.name for row in exhibit.rows)}")
        console.print(f"Methods: {', '.join(column.label for column in exhibit.columns)}", markup=False)
    if plan.specs:
        states = [runs.state(spec) for spec in plan.specs]
        counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "unfinished", "missing"))
        console.print(f"{len(states)} runs at the {plan.scale} scale: {counts}.")
        if missing := [spec for spec, state in zip(plan.specs, states, strict=True) if state != "complete"]:
            console.print(time_left(missing, runs))
    if plan.draws:
        done = sum(draw_file(runs.root, draw).exists() for draw in plan.draws)
        console.print(f"{len(plan.draws)} draws of simulated data: {done} done; each takes seconds.")
    console.say(f"To make it: {selection.command_of(exhibit.name)}")


def time_left(missing: "list[RunSpec]", runs: "RunStore") -> str:
    """Estimate the time of the missing runs, one at a time."""
    from metacal.lab.engines.estimate import estimate_seconds

    seconds = estimate_seconds(missing, runs)
    spans = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next((each for each in spans if seconds >= 2 * each[0]), spans[-1])
    return f"The rest takes roughly {seconds / size:,.0f} {unit} on this machine, one run at a time."
