"""``metacal validate``: whether the tables and what is in the store fit together, without running anything."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from metacal.errors import MetacalError


def validate(
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Check every table and figure under every preset, and all that is in a store. Exit status 1 if something is wrong.

    Example: [bold]metacal validate --store runs[/]
    """
    from metacal.experiments import EXHIBITS
    from metacal.runs import RunFolder
    from metacal.runs.draw_store import DrawStore
    from metacal.runs.presets import PRESETS

    console, problems = Console(highlight=False), []
    for exhibit in EXHIBITS.values():
        for preset in PRESETS:
            try:
                exhibit.specs(preset)
            except MetacalError as error:
                problems.append(f"{exhibit.name}, {preset}: {error}")
    folders = [RunFolder(path.parent) for path in sorted(store.glob("*/spec.json"))]
    for folder in folders:
        try:
            spec = folder.read_spec()
            if folder.is_complete and folder.read_scores()["spec"] != spec.hash:
                problems.append(f"{folder.path}: its scores are those of another spec.")
        except MetacalError as error:
            problems.append(str(error))
    draws = DrawStore(store)
    for path in sorted(draws.root.glob("*.json")):
        try:
            draws.read_file(path)
        except MetacalError as error:
            problems.append(str(error))
    for problem in problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    complete = sum(folder.is_complete for folder in folders)
    console.print(
        f"{len(EXHIBITS)} tables and figures; {len(folders)} runs in {store}, {complete} complete; "
        f"{len(problems)} problems.",
        markup=False,
        soft_wrap=True,
    )
    raise typer.Exit(1 if problems else 0)
