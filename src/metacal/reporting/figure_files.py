"""Figures as image files: there whole or not at all, and the same bytes for the same numbers."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from metacal.files import write_whole
from metacal.reporting.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the path ends in; folders are made if need be.

    Raises:
        StorageError: it could not be written; the message says why.
    """
    image = figure_bytes(figure, path.suffix.removeprefix("."))
    write_whole(path, lambda file: file.write(image))


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """A figure as the bytes of an image, in one of `FORMATS`."""
    held = io.BytesIO()
    with house_style(), warnings.catch_warnings():
        # A class name may need a glyph that the font lacks: the SVG keeps the text, the PNG shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(held, format=suffix, metadata={"Date": None} if suffix == "svg" else {"Software": None})
    return held.getvalue()
