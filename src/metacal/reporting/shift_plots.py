"""Heat maps of a run under shift, as static figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metacal.reporting.shift import Shift
from metacal.reporting.style import INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_shift(shift: Shift) -> Figure:
    """ECE, ECE with the clean temperature and error over corruptions and severities, values in percent."""
    rows = len(shift.corruptions)
    figure = new_figure(3.6 + 2.5 * len(shift.maps), 1.4 + 0.27 * rows)
    axes = figure.subplots(1, len(shift.maps), sharey=True, squeeze=False)[0]
    # The two calibration errors share a scale: what a temperature mends is seen at a glance.
    together = max(max(map(max, each.values)) for each in shift.maps if each.figure != "error")
    for axis, each in zip(axes, shift.maps, strict=True):
        highest = max(map(max, each.values)) if each.figure == "error" else together
        axis.grid(visible=False)
        axis.imshow(each.values, cmap="Blues", vmin=0.0, vmax=max(highest, 1e-9) * 1.25, aspect="auto")
        for row, line in enumerate(each.values):
            for column, value in enumerate(line):
                colour = "white" if value > 0.75 * highest else INK
                axis.text(column, row, f"{100 * value:.1f}", ha="center", va="center", fontsize=7.5, color=colour)
        axis.set_xticks(range(len(shift.severities)), [str(severity) for severity in shift.severities])
        axis.set_xlabel("severity")
        axis.set_title(
            f"{each.title}, %\n"
            f"clean {100 * each.clean:.1f}, average {100 * each.average:.1f}, worst {100 * each.worst:.1f}",
            fontsize=8.5,
        )
    axes[0].set_yticks(range(rows), [name.replace("_", " ") for name in shift.corruptions])
    figure.suptitle(f"{shift.name} ({shift.source}), {shift.samples:,} images a domain", fontsize=9, x=0.01, ha="left")
    return figure
