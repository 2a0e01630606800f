"""Commands of the lab, one file each, and their common options; `metacal.cli.app` registers them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from metacal.reporting import RunView

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Data folder; else METACAL_DATA, else the user's cache folder."),
]
TrustModel = Annotated[
    bool, typer.Option("--trust-model", help="Run the code of a model that the run names by import path.")
]


def read_run_folder(folder: Path) -> "RunView":
    """Read the run in a folder, for ``metacal report``."""
    from metacal.lab.training.read_run import read_run

    return read_run(folder)
