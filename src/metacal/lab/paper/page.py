"""`render_paper_page`: tables and figures of the paper on one self-contained page, ours beside the published."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metacal.lab.paper.figures import FigureData
from metacal.lab.paper.render import image_of
from metacal.lab.paper.table import Cell, TableData, best_of, metric_name
from metacal.reporting.page import page_assets, policy_hash, template_environment


@dataclass(frozen=True)
class PageCell:
    """A cell as the page shows it: ours, and what was published with the difference where the two can be compared."""

    ours: str
    published: str
    is_best: bool


def render_paper_page(prepared: Sequence[TableData | FigureData], title: str, version: str = "") -> str:
    """The page's HTML: no script, no request, all text from data escaped.

    Args:
        prepared: tables and figures in the order they are shown.
        title: heading of the page.
        version: of metacal, for the page's foot.
    """
    style, _ = page_assets()
    return (
        template_environment()
        .get_template("paper.html.j2")
        .render(
            title=title,
            exhibits=[_exhibit(data) for data in prepared],
            style=style,
            style_hash=policy_hash(style),
            version=version,
        )
    )


def _exhibit(data: TableData | FigureData) -> dict[str, Any]:
    shared = {key: getattr(data, key) for key in ("name", "title", "claim", "note", "command", "missing")}
    if isinstance(data, FigureData):
        image = image_of(data, "svg")
        encoded = None if image is None else base64.b64encode(image).decode()
        return {**shared, "image": encoded, "is_table": False}
    rows = [{"row": line[0].row, "metric": metric_name(line[0].metric), "cells": _cells(line)} for line in data.cells]
    return {**shared, "columns": data.columns, "rows": rows, "ranks": data.rank_lines, "is_table": True}


def _cells(line: tuple[Cell, ...]) -> list[PageCell]:
    best = best_of(line)
    return [PageCell(cell.text(), cell.published_text(), cell.column in best) for cell in line]
