"""``metacal validate``: check the specs of all tables and figures, and the runs in a store."""

from typing import TYPE_CHECKING

import typer

from metacal.cli.terminal import Console
from metacal.errors import MetacalError
from metacal.lab.cli.run import Store

if TYPE_CHECKING:
    from metacal.lab.training import RunFolder


def validate(store: Store = "runs") -> None:
    """Check every table and figure at every scale, and all runs in a store; exit status 1 if there are problems.

    Example: [bold]metacal validate --store runs[/]
    """
    from metacal.lab.paper import EXHIBITS
    from metacal.lab.paper.exhibits import SCALES
    from metacal.lab.paper.simulated import read_draw
    from metacal.lab.training.run_folder import RunStore

    console, runs, problems = Console(highlight=False), RunStore(store), []
    folders = runs.folders()
    for exhibit in EXHIBITS.values():
        for scale in SCALES:
            try:
                exhibit.specs(scale)
            except MetacalError as error:
                problems.append(f"{exhibit.name}, {scale}: {error}")
    problems += filter(None, map(problem_of, folders))
    for path in sorted((runs.root / "simulated").glob("*.json")):
        try:
            read_draw(path)
        except MetacalError as error:
            problems.append(str(error))
    for problem in problems:
        console.say(problem, "red")
    console.say(
        f"{len(EXHIBITS)} tables and figures; {len(folders)} runs in {store}, {len(runs.complete())} complete; "
        f"{len(problems)} problems."
    )
    raise typer.Exit(1 if problems else 0)


def problem_of(folder: "RunFolder") -> str:
    """Describe what is wrong with a run; empty if nothing is."""
    try:
        spec = folder.read_spec()
        if folder.is_complete and folder.read_scores()["spec"] != spec.hash:
            return f"{folder.path}: its scores belong to another spec."
        return " ".join(folder.damaged_files())
    except MetacalError as error:
        return str(error)
