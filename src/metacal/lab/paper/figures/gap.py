"""The calibration generalisation gap: error and ECE over training, on what is trained on and on what is not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from metacal.lab.paper.figures.panels import Band, Panel, band_of, draw_bands
from metacal.reporting.learning import PARTS
from metacal.reporting.style import in_percent, new_figure


@dataclass(frozen=True)
class GapPanel:
    """Bands over epochs of one panel."""

    name: str
    error: list[Band]
    ece: list[Band]


def prepare_gap(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[GapPanel]:
    """Error and ECE of the training and validation parts, over seeds."""
    prepared = []
    for panel in panels:
        histories = [run.read_history() for run in panel.runs]
        bands = {
            measure: [
                band_of(PARTS[part], [[row[f"{part}_{measure}"] for row in history] for history in histories])
                for part in ("train", "val")
            ]
            for measure in ("error", "ece")
        }
        prepared.append(GapPanel(panel.name, bands["error"], bands["ece"]))
    return prepared


def plot_gap(panels: Sequence[GapPanel]) -> Figure:
    """A row of axes for each panel: error, then ECE."""
    figure = new_figure(8.4, 3.2 * len(panels))
    for axes, panel in zip(figure.subplots(len(panels), 2, squeeze=False), panels, strict=True):
        for axis, title, bands in zip(axes, ("Share wrong", "ECE"), (panel.error, panel.ece), strict=True):
            draw_bands(axis, bands)
            axis.set(title=f"{title}: {panel.name}", xlabel="Epoch", ylim=(0.0, None))
            in_percent(axis)
            axis.legend()
    return figure
