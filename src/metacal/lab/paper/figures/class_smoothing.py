"""How much each class is smoothed, and towards which others, at the best checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from metacal.lab.paper.figures.panels import Panel
from metacal.reporting.style import BLUE, in_percent, new_figure, short, white_to_blue


@dataclass(frozen=True)
class ClassSmoothing:
    """Mean over seeds.

    Attributes:
        name: of the panel.
        class_names: K names.
        strength: what each class gives away in all.
        spread: standard deviation of it over seeds.
        values: what each class (row) gives to each other (column).
    """

    name: str
    class_names: list[str]
    strength: list[float]
    spread: list[float]
    values: list[list[float]]


def prepare_class_smoothing(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[ClassSmoothing]:
    """The learned matrices, over seeds."""
    prepared = []
    for panel in panels:
        views = panel.views()
        matrices = torch.stack([view.smoothing for view in views if view.smoothing is not None])
        given = matrices.sum(dim=2)
        prepared.append(
            ClassSmoothing(
                panel.name,
                list(views[0].class_names),
                given.mean(dim=0).tolist(),
                given.std(dim=0, correction=0).tolist(),
                matrices.mean(dim=0).tolist(),
            )
        )
    return prepared


def plot_class_smoothing(panels: Sequence[ClassSmoothing]) -> Figure:
    """A row of axes for each panel: strength by class, and the matrix."""
    figure = new_figure(10.0, 4.6 * len(panels))
    for (bars, grid), panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        places = range(len(panel.class_names))
        names = [short(name, 18) for name in panel.class_names]
        bars.barh(places, panel.strength, xerr=panel.spread, color=BLUE, alpha=0.8)
        bars.set_yticks(places, names)
        bars.set(title=f"Strength: {panel.name}", ylim=(len(names) - 0.5, -0.5))
        in_percent(bars, "x")
        highest = max(max(row) for row in panel.values)
        image = grid.imshow(panel.values, cmap=white_to_blue(), vmin=0.0, vmax=highest or 1.0)
        grid.set_xticks(places, names, rotation=90)
        grid.set_yticks(places, names)
        grid.grid(visible=False)
        grid.set(title="Given to (columns) by (rows)")
        in_percent(figure.colorbar(image, ax=grid, shrink=0.7).ax)
    return figure
