"""Verbs of the lab, one file each; `metacal.cli.app` gathers them."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metacal.reporting import RunView


def read_run_folder(folder: Path) -> "RunView":
    """The run in a folder, for ``metacal report``."""
    from metacal.lab.training.read_run import read_run

    return read_run(folder)
