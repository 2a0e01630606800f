"""`render_paper_page`: tables and figures of the paper on one self-contained page, ours beside the published."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metacal.reporting.exhibits import image_of
from metacal.reporting.page import page_assets, policy_hash, template_environment
from metacal.reporting.paper_figures import FigureData
from metacal.reporting.paper_table import Cell, TableData, best_of, metric_name


@dataclass(frozen=True)
class PageCell:
    """A cell as the page shows it: ours, published, and the difference where the two stand against each other."""

    ours: str
    published: str
    difference: str
    is_best: bool


def render_paper_page(
    prepared: Sequence[TableData | FigureData], title: str, commands: Sequence[str], version: str = ""
) -> str:
    """The page's HTML: no script, no request, all text from data escaped.

    Args:
        prepared: tables and figures in the order they are shown.
        title: heading of the page.
        commands: what fills the missing cells of each.
        version: of metacal, for the page's foot.
    """
    style, _ = page_assets()
    return (
        template_environment()
        .get_template("paper.html.j2")
        .render(
            title=title,
            exhibits=[_exhibit(data, command) for data, command in zip(prepared, commands, strict=True)],
            style=style,
            style_hash=policy_hash(style),
            version=version,
        )
    )


def _exhibit(data: TableData | FigureData, command: str) -> dict[str, Any]:
    shared = {"name": data.name, "title": data.title, "claim": data.claim, "note": data.note, "command": command}
    if isinstance(data, FigureData):
        image = image_of(data, "svg")
        encoded = None if image is None else base64.b64encode(image).decode()
        return {**shared, "image": encoded, "missing": data.wanted - data.done, "is_table": False}
    rows = [
        {"row": line[0].row, "metric": metric_name(line[0].metric), "cells": _cells(line, data.is_reduced)}
        for line in data.cells
    ]
    missing = sum(len(cell.values) < cell.wanted for line in data.cells for cell in line)
    ranks = None if data.ranks is None else [f"{rank:.1f}" for rank in data.ranks]
    return {**shared, "columns": data.columns, "rows": rows, "ranks": ranks, "missing": missing, "is_table": True}


def _cells(line: tuple[Cell, ...], is_reduced: bool) -> list[PageCell]:
    best = best_of(line)
    return [
        PageCell(
            cell.text(),
            cell.published_text(),
            "" if cell.difference is None or is_reduced else f"{cell.difference:+.2f}".replace("-", "−"),
            cell is best,
        )
        for cell in line
    ]
