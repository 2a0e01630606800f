"""Tables on pages against the files they were made of, cell by cell: the right row and column, not just some number."""

import csv
import io
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "paper"
METRICS = {
    "ECE": "ece_percent",
    "ECE after temperature": "ece_after_temperature_percent",
    "classwise ECE": "classwise_ece_percent",
    "confidence - accuracy": "confidence_minus_accuracy_percent",
    "error": "error_percent",
}
# Figures as they are written: mean, spread, published.
CELL = re.compile(r"\**([+-]?\d+\.\d+)(?: ± (\d+\.\d+))?\**(?: \((\d+\.\d+)\))?")

# On the pages that compare data sets: a row's folder, and what each column shows.
FOLDERS = {
    "20 Newsgroups in full": "newsgroups-outer-step",
    "CIFAR-10,": "cifar10-outer-step",
    "SVHN": "svhn-outer-step",
    "CIFAR-100": "cifar100-outer-step",
}
COLUMNS = {
    "cross-entropy (CE)": ("CE", "ECE"),
    "CE": ("CE", "ECE"),
    "CE + temperature": ("CE", "ECE after temperature"),
    "label smoothing 0.05": ("LS", "ECE"),
    "LS 0.05": ("LS", "ECE"),
    'MC, `"paper"`': ("MC", "ECE"),
    'MC, `"steady"`': ("MC, steady", "ECE"),
    "error, CE": ("CE", "error"),
    "error, MC steady": ("MC, steady", "error"),
}


def tables_of(page):
    """Every table as rows of cells, without the line under its heading."""
    blocks = re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(encoding="utf-8"), re.M)
    rows = [[re.split(r" ?\| ?", line.strip("|").strip()) for line in block.splitlines()] for block in blocks]
    return [[head, *body] for head, _, *body in rows]


@cache
def figures_of(folder):
    """Rows of all tables in a folder of results, by method and metric."""
    texts = [file.read_text(encoding="utf-8") for file in (RESULTS / folder).glob("*.csv")]
    lines = [line for text in texts for line in csv.DictReader(io.StringIO(text))]
    return {(line["method"], line["metric"]): line for line in lines}


def is_it(cell, line):
    """Whether a cell says what a line of the results does."""
    found = CELL.fullmatch(cell)
    if line is None or found is None:
        return False
    wanted = (line["mean"], line["std"] or None, line["published_mean"] or None)
    shown = found.groups() if found[3] else (*found.groups()[:2], None)
    wanted = wanted if found[3] else (*wanted[:2], None)
    return all(
        (a is None) == (b is None) and (a is None or f"{float(a):.2f}" == f"{float(b):.2f}")
        for a, b in zip(shown, wanted, strict=True)
    )


def is_of_methods(table):
    return len(table) > 1 and all(row[0] in METRICS for row in table[1:])


def test_tables_of_the_study_are_those_of_a_folder_that_it_names():
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    folders = set(re.findall(r"`results/paper/([\w-]+)/`", text))
    compared = [table for table in tables_of("docs/study.md") if is_of_methods(table)]
    assert len(compared) >= 9
    for head, *body in compared:
        cells = [
            (cell, method, METRICS[row[0]]) for row in body for cell, method in zip(row[1:], head[1:], strict=True)
        ]
        homes = [
            folder
            for folder in folders
            if all(is_it(cell, figures_of(folder).get((method, metric))) for cell, method, metric in cells)
        ]
        assert homes, f"no folder has the table {' | '.join(head)}: {body[0]}"


@pytest.mark.parametrize("page", ["README.md", "docs/which-method.md"])
def test_data_sets_are_compared_by_their_own_figures(page):
    (table,) = [table for table in tables_of(page) if "CE + temperature" in table[0]]
    head, *body = table
    checked = 0
    for row in body:
        for start, folder in FOLDERS.items():
            if not row[0].startswith(start):
                continue
            for name, cell in zip(head, row, strict=True):
                if name in COLUMNS:
                    method, metric = COLUMNS[name]
                    line = figures_of(folder)[method, METRICS[metric]]
                    assert cell == f"{float(line['mean']):.2f}", (row[0], name)
                    assert f"{line['seeds']} seed" in row[0] or "one seed" in row[0], row[0]
                    checked += 1
    assert checked >= 4 * 5


def test_the_check_can_fail():
    line = {"mean": "4.587", "std": "0.631", "published_mean": ""}
    assert is_it("**4.59 ± 0.63**", line) and is_it("+4.59 ± 0.63", line)
    assert not any(is_it(cell, line) for cell in ("4.58 ± 0.63", "4.59 ± 0.64", "4.59", "4.59 ± 0.63 (1.00)", "-"))
