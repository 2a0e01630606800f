"""Style and saving of static figures: the page's colours, literal text from data, reproducible bytes."""

from __future__ import annotations

import io
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metacal.errors import needs
from metacal.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
INK, MUTED, GRID = "#1a1d21", "#59616b", "#eceef1"
BLUE, OVER, UNDER = "#0068a8", "#b84300", "#00745a"
BAR, COUNT = "#a9cfe8", "#8d97a3"
OVER_FILL, UNDER_FILL = "#f9d7c1", "#c4e9dd"
SERIES = (
    (BLUE, "-"),
    (OVER, "--"),
    (UNDER, ":"),
    ("#9c3f79", "-."),
    ("#7a5c00", (0, (6, 2))),
    ("#4a4f57", (0, (2, 2))),
)

RC: dict[Any, Any] = {
    "text.parse_math": False,  # a class may be called "$x$"
    "font.size": 9.0,
    "font.family": "sans-serif",
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": MUTED,
    "axes.edgecolor": COUNT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "none",  # text stays text: to be searched, read aloud and edited
    "svg.hashsalt": "metacal",  # the same numbers give the same file
    "savefig.dpi": 160,
}


def house_style() -> AbstractContextManager[None]:
    """Use our matplotlib settings inside."""
    with needs("cli"):
        from matplotlib import rc_context
    return rc_context(RC)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, without global state."""
    with needs("cli"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def new_axis(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure with one pair of axes."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def white_to_blue() -> Colormap:
    """The colour map of a matrix of shares."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("white-to-blue", ["#ffffff", BLUE])


def in_percent(axis: Axes, which: str = "y") -> None:
    """Label an axis of fractions in percent."""
    chosen = axis.yaxis if which == "y" else axis.xaxis
    chosen.set_major_formatter(lambda value, _: f"{value * 100:.4g} %")


def draw_diagonal(axis: Axes, highest: float = 1.0) -> None:
    """Draw the line where both axes agree."""
    axis.plot((0.0, highest), (0.0, highest), color=INK, alpha=0.5, linewidth=0.9, linestyle=(0, (4, 4)))


def short(name: str, most: int = 28) -> str:
    """Shorten a name to fit beside an axis."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's extension, creating folders.

    Raises:
        StorageError: it could not be written; the message says why.
    """
    image = figure_bytes(figure, path.suffix.removeprefix("."))
    write_whole(path, lambda file: file.write(image))


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a figure as image bytes in one of `FORMATS`."""
    held = io.BytesIO()
    with house_style(), warnings.catch_warnings():
        # A class name may need a glyph that the font lacks: the SVG keeps the text, the PNG shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(held, format=suffix, metadata={"Date": None} if suffix == "svg" else {"Software": None})
    return held.getvalue()
