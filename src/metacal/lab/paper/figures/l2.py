"""Histograms of learned L2 coefficients, all seeds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure

from metacal.lab.paper.figures.panels import Panel
from metacal.reporting.run_plots import plot_l2
from metacal.reporting.smoothing import Histogram, prepare_l2


@dataclass(frozen=True)
class L2Panel:
    """Histograms of one panel."""

    name: str
    histograms: list[Histogram]


def prepare_l2_panels(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[L2Panel]:
    """Coefficients of every seed, binned together."""
    prepared = []
    for panel in panels:
        learned = [view.l2 for view in panel.views() if view.l2 is not None]
        joint = {name: torch.cat([values[name].reshape(-1) for values in learned]) for name in learned[0]}
        prepared.append(L2Panel(panel.name, prepare_l2(joint)))
    return prepared


def plot_l2_panels(panels: Sequence[L2Panel]) -> Figure:
    """One histogram beside the other."""
    named = [
        replace(histogram, name=f"{histogram.name}, {panel.name}") for panel in panels for histogram in panel.histograms
    ]
    return plot_l2(named)
