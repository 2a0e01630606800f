"""Reliability diagrams and the confidences under them, a column for each panel; all seeds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from matplotlib.figure import Figure

from metacal.functional.expected_calibration_error import bin_statistics
from metacal.lab.paper.figures.panels import Panel
from metacal.reporting.prediction_plots import draw_bins
from metacal.reporting.reliability import Bins, to_bins
from metacal.reporting.style import COUNT, in_percent, new_figure


@dataclass(frozen=True)
class ReliabilityPanel:
    """The diagram of one panel."""

    name: str
    edges: list[float]
    bins: Bins


def prepare_reliability_panels(panels: Sequence[Panel], options: Mapping[str, Any]) -> list[ReliabilityPanel]:
    """Test predictions of every seed, binned together."""
    prepared = []
    for panel in panels:
        tests = [run.read_predictions("test") for run in panel.runs]
        parts = [bin_statistics(logits=test.logits, targets=test.targets, validate=False) for test in tests]
        joint = reduce(add, parts)
        prepared.append(ReliabilityPanel(panel.name, joint.edges.tolist(), to_bins(joint)))
    return prepared


def plot_reliability_panels(panels: Sequence[ReliabilityPanel]) -> Figure:
    """Diagrams above, shares of samples below."""
    figure = new_figure(3.4 * len(panels), 4.8)
    axes = figure.subplots(2, len(panels), sharex=True, squeeze=False, height_ratios=(4, 1))
    for upper, lower, panel in zip(axes[0], axes[1], panels, strict=True):
        draw_bins(upper, panel.edges, panel.bins, whiskers=True)
        upper.set_title(f"{panel.name}\nECE {panel.bins.ece or 0.0:.2%}", fontsize=8)
        width = panel.edges[1] - panel.edges[0]
        total = sum(panel.bins.counts)
        lower.bar(panel.edges[:-1], [n / total for n in panel.bins.counts], 0.94 * width, align="edge", color=COUNT)
        lower.set(xlim=(0.0, 1.0), xlabel="Confidence")
        in_percent(lower)
    axes[0][0].set_ylabel("Share right")
    axes[1][0].set_ylabel("Samples")
    return figure
