"""Smoothing within and across superclasses, over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from metacal.lab.paper.figures.panels import Panel
from metacal.reporting.run_plots import plot_superclasses
from metacal.reporting.smoothing import SuperclassSmoothing, prepare_superclasses


@dataclass(frozen=True)
class SuperclassPanel:
    """The mean over seeds of one panel; nothing if its data have no superclasses."""

    name: str
    smoothing: SuperclassSmoothing | None


def prepare_superclass_panels(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[SuperclassPanel]:
    """Within and across, from the mean of the learned matrices."""
    prepared = []
    for panel in panels:
        views = panel.views()
        matrices = [view.smoothing for view in views if view.smoothing is not None]
        names, superclasses, smoothing = views[0].class_names, views[0].superclasses, None
        if matrices and superclasses is not None:
            smoothing = prepare_superclasses(torch.stack(matrices).mean(dim=0), names, superclasses)
        prepared.append(SuperclassPanel(panel.name, smoothing))
    return prepared


def plot_superclass_panels(panels: Sequence[SuperclassPanel]) -> Figure | None:
    """The first panel; None if its data have no superclasses."""
    return None if panels[0].smoothing is None else plot_superclasses(panels[0].smoothing)
