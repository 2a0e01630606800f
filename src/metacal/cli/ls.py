"""``metacal ls``: what the paper has."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def ls(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the list as JSON.")
    ] = None,
) -> None:
    """List every table of the paper that one command makes.

    Example: [bold]metacal ls[/], then [bold]metacal show main-ece[/] and [bold]metacal run main-ece --preset smoke[/]
    """
    from metacal.experiments import TABLES

    listed = Table()
    listed.add_column("name", no_wrap=True)
    for column in ("number", "what it shows", "rows", "methods", "runs"):
        listed.add_column(column)
    for table in TABLES.values():
        sizes = (str(len(table.rows)), str(len(table.columns)), str(len(table.specs())))
        listed.add_row(table.name, f"table-{table.number}", table.title, *sizes)
    Console().print(listed)
    if json_file is not None:
        entries = [
            {"name": t.name, "number": t.number, "label": t.label, "title": t.title, "claim": t.claim}
            for t in TABLES.values()
        ]
        json_file.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
