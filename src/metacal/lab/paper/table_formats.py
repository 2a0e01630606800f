"""A prepared table as Markdown, LaTeX, CSV and JSON."""

import csv
import io
from pathlib import Path

from metacal.files import write_json, write_text
from metacal.lab.paper.exhibits import Published
from metacal.lab.paper.prepare_tables import TableData, best_of, metric_name

PUBLISHED = "published, and by how much ours is above it where both are of the same setting."
OURS = ("row", "method", "metric", "mean", "std", "seeds", "temperature")
LATEX = {
    **{special: f"\\{special}" for special in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "−": "$-$", "<": "$<$", ">": "$>$"},
}


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
        shown = [f"**{cell.text()}**" if cell.column in best else cell.text() for cell in line]
        both = [f"{ours} [{cell.published_text()}]" for ours, cell in zip(shown, line, strict=True)]
        lines.append(_pipes([line[0].row, metric_name(line[0].metric), *both]))
    lines += [_pipes([name, "", *ranks]) for name, ranks in data.rank_lines]
    lines += ["", f"In brackets: {PUBLISHED}"]
    if data.missing:
        lines += ["", f"{data.missing} cells lack seeds: `{data.command}` fills them."]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex_table(data: TableData) -> str:
    """A booktabs table, the best in bold; under each line of ours the published one."""
    lines = [
        "\\begin{table}",
        f"\\caption{{{_latex(data.title)}. {_latex(data.note)} In brackets: {_latex(PUBLISHED)}}}",
        f"\\begin{{tabular}}{{ll{'c' * len(data.columns)}}}",
        "\\toprule",
        " & ".join(["", "metric", *map(_latex, data.columns)]) + " \\\\",
        "\\midrule",
    ]
    for line in data.cells:
        best = best_of(line)
        cells = [_latex(cell.text()) for cell in line]
        shown = [f"\\textbf{{{text}}}" if cell.column in best else text for text, cell in zip(cells, line, strict=True)]
        said = [f"[{_latex(cell.published_text())}]" for cell in line]
        lines.append(" & ".join([_latex(line[0].row), _latex(metric_name(line[0].metric)), *shown]) + " \\\\")
        lines.append(" & ".join(["", "", *said]) + " \\\\")
    if data.rank_lines:
        lines += ["\\midrule", *(" & ".join([name, "", *ranks]) + " \\\\" for name, ranks in data.rank_lines)]
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{table}"]
    if data.missing:
        lines.append(f"% {data.missing} cells lack seeds; filled by: {data.command}")
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Text with what is special to LaTeX escaped."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def csv_table(data: TableData) -> str:
    """One line a cell; no difference where ours is not of the published setting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*OURS, *(f"published_{name}" for name in Published._fields), "difference", "setting"])
    for cell in (cell for line in data.cells for cell in line):
        said = cell.published or Published(float("nan"), None, None)
        ours = (cell.mean, cell.std, len(cell.values), cell.temperature)
        figures = ("" if v is None or v != v else v for v in (*ours, *said, cell.difference))
        writer.writerow([cell.row, cell.column, cell.metric, *figures, cell.setting])
    return text.getvalue()
