"""A contact sheet: images as every corruption and severity shows them, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.reporting.style import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 2
INCHES = 0.62


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
    figure = new_figure(1.9 + INCHES * len(columns) * width / height, 0.5 + INCHES * len(rows))
    axis = figure.subplots()
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
