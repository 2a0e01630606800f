"""Smoothing over training: the mean strength and its spread over classes and seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from metacal.lab.paper.figures.panels import Band, Panel, band_of, draw_bands
from metacal.reporting.learning import learning_rate_drops
from metacal.reporting.run_plots import draw_drops
from metacal.reporting.style import in_percent, new_figure


@dataclass(frozen=True)
class StrengthsPanel:
    """Strength over epochs, and the epochs at which the learning rate drops."""

    name: str
    band: Band
    drops: list[int]


def prepare_strengths_over_training(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[StrengthsPanel]:
    """Mean and standard deviation over seeds and classes."""
    prepared = []
    for panel in panels:
        views = panel.views()
        learned = [view.strengths for view in views if view.strengths is not None]
        shortest = min(len(strengths) for strengths in learned)
        lines = torch.cat([strengths[:shortest].T for strengths in learned])
        drops = [epoch for epoch in learning_rate_drops(views[0]) if epoch <= shortest]
        prepared.append(StrengthsPanel(panel.name, band_of(panel.row, lines), drops))
    return prepared


def plot_strengths_over_training(panels: Sequence[StrengthsPanel]) -> Figure:
    """All panels on one pair of axes."""
    figure = new_figure(6.4, 3.4)
    axis = figure.subplots()
    draw_bands(axis, [panel.band for panel in panels])
    draw_drops(axis, max((panel.drops for panel in panels), key=len))
    axis.set(title="Smoothing strength: mean and spread over classes and seeds", xlabel="Epoch", ylim=(0.0, None))
    in_percent(axis)
    axis.legend()
    return figure
