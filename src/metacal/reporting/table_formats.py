"""A prepared table as Markdown, LaTeX, CSV and JSON."""

import csv
import io
from pathlib import Path

from metacal.files import write_json, write_text
from metacal.reporting.paper_table import TableData, best_of
from metacal.runs.paper import Published


def write_table(data: TableData, folder: Path) -> None:
    """Write a table in every format into a folder."""
    write_text(folder / f"{data.name}.md", markdown_table(data))
    write_text(folder / f"{data.name}.tex", latex_table(data))
    write_text(folder / f"{data.name}.csv", csv_table(data))
    write_json(folder / f"{data.name}.json", data.as_dict())


def markdown_table(data: TableData) -> str:
    """GitHub's tables: ours with the published figure in brackets, the best in bold."""
    head = ["", "metric", *data.columns]
    lines = [f"**{data.title}**", "", data.note, "", _pipes(head), _pipes(["---"] * len(head))]
    for line in data.cells:
        best = best_of(line)
        shown = [f"**{cell.text()}**" if cell is best else cell.text() for cell in line]
        both = [f"{ours} [{cell.published_text()}]" for ours, cell in zip(shown, line, strict=True)]
        lines.append(_pipes([line[0].row, line[0].metric, *both]))
    if data.ranks is not None:
        lines.append(_pipes(["average rank", "ours", *(f"{rank:.1f}" for rank in data.ranks)]))
    return "\n".join([*lines, "", "In brackets: published."]) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex_table(data: TableData) -> str:
    """A booktabs table of ours, the best in bold."""
    lines = [
        "\\begin{table}",
        f"\\caption{{{_latex(data.title)}. {_latex(data.note)}}}",
        f"\\begin{{tabular}}{{ll{'c' * len(data.columns)}}}",
        "\\toprule",
        " & ".join(["", "metric", *map(_latex, data.columns)]) + " \\\\",
        "\\midrule",
    ]
    for line in data.cells:
        best = best_of(line)
        cells = [_latex(cell.text()) for cell in line]
        shown = [f"\\textbf{{{text}}}" if cell is best else text for text, cell in zip(cells, line, strict=True)]
        lines.append(" & ".join([_latex(line[0].row), _latex(line[0].metric), *shown]) + " \\\\")
    if data.ranks is not None:
        lines += ["\\midrule", " & ".join(["average rank", "", *(f"{rank:.1f}" for rank in data.ranks)]) + " \\\\"]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"


def _latex(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    return text.replace("±", "$\\pm$")


def csv_table(data: TableData) -> str:
    """One line a cell: row, column, metric, ours with its spread and seeds, published, difference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = (
        "row",
        "method",
        "metric",
        "mean",
        "std",
        "seeds",
        "temperature",
        "published_mean",
        "published_std",
        "difference",
    )
    writer.writerow(names)
    for cell in (cell for line in data.cells for cell in line):
        said = cell.published or Published(float("nan"), None, None)
        figures = (cell.mean, cell.std, len(cell.values), cell.temperature, said.mean, said.std, cell.difference)
        writer.writerow([cell.row, cell.column, cell.metric, *("" if v is None or v != v else v for v in figures)])
    return text.getvalue()
