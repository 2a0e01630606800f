"""Where datasets are on disk."""

import os
from pathlib import Path

from metacal.errors import needs

VARIABLE = "METACAL_DATA"


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of the datasets: the argument, else what METACAL_DATA names, else the user's cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    with needs("lab"):
        import pooch
    return Path(pooch.os_cache("metacal"))
