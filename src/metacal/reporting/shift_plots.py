"""Static figures of shift: heat maps of a run under corruptions, and a sheet of corrupted images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.reporting.shift import Shift
from metacal.reporting.style import INK, new_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 2
INCHES = 0.62


def plot_shift(shift: Shift) -> Figure:
    """ECE, ECE with the clean temperature and error over corruptions and severities, values in percent."""
    rows = len(shift.corruptions)
    figure = new_figure(3.6 + 2.5 * len(shift.maps), 1.4 + 0.27 * rows)
    axes = figure.subplots(1, len(shift.maps), sharey=True, squeeze=False)[0]
    # The two calibration errors share a scale: what a temperature fixes shows at once.
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


def plot_contact_sheet(tiles: Sequence[Sequence[Tensor]], rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Draw tiles in rows and columns.

    Args:
        tiles: for every row its tiles, uint8 ``(C, H, W)`` of one shape.
        rows: a name for each row.
        columns: a name for each column.
    """
    if len(tiles) != len(rows) or any(len(row) != len(columns) for row in tiles):
        raise InvalidValueError(f"`tiles` must be {len(rows)} rows of {len(columns)} tiles.")
    channels, height, width = tiles[0][0].shape
    page = torch.full(
        (channels, len(rows) * (height + GAP) - GAP, len(columns) * (width + GAP) - GAP), 255, dtype=torch.uint8
    )
    for down, row in enumerate(tiles):
        for right, tile in enumerate(row):
            top, left = down * (height + GAP), right * (width + GAP)
            page[:, top : top + height, left : left + width] = tile.cpu()
    figure, axis = new_axis(1.9 + INCHES * len(columns) * width / height, 0.5 + INCHES * len(rows))
    shown = page.permute(1, 2, 0).numpy()
    if channels == 1:
        axis.imshow(shown[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    else:
        axis.imshow(shown, interpolation="nearest")
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.tick_params(length=0)
    axis.xaxis.tick_top()
    axis.set_xticks([(width + GAP) * number + width / 2 for number in range(len(columns))], list(columns))
    axis.set_yticks([(height + GAP) * number + height / 2 for number in range(len(rows))], list(rows))
    return figure
