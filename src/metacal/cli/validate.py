"""``metacal validate``: whether the tables and what is in the store fit together, without running anything."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from metacal.errors import MetacalError


def validate(
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Check every table under every preset, and every run in the store. Exit status 1 if something is wrong.

    Example: [bold]metacal validate --store runs[/]
    """
    from metacal.experiments import TABLES
    from metacal.runs import RunFolder
    from metacal.runs.presets import PRESETS

    console, problems = Console(highlight=False), []
    for table in TABLES.values():
        for preset in PRESETS:
            try:
                table.specs(preset)
            except MetacalError as error:
                problems.append(f"{table.name}, {preset}: {error}")
    folders = [RunFolder(path.parent) for path in sorted(store.glob("*/spec.json"))]
    for folder in folders:
        try:
            spec = folder.read_spec()
            if folder.is_complete and folder.read_scores()["spec"] != spec.hash:
                problems.append(f"{folder.path}: its scores are those of another spec.")
        except MetacalError as error:
            problems.append(str(error))
    for problem in problems:
        console.print(problem, style="red")
    complete = sum(folder.is_complete for folder in folders)
    console.print(
        f"{len(TABLES)} tables; {len(folders)} runs in {store}, {complete} complete; {len(problems)} problems."
    )
    raise typer.Exit(1 if problems else 0)
