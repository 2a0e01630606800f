"""Tables on pages against the files they were made of, cell by cell: the right row and column, not just some number."""

import csv
import io
import json
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

# On the pages that compare data sets: a row's folders or its regime in the study, and what each column shows.
FOLDERS = {
    "20 Newsgroups in full": ("newsgroups-outer-step", "newsgroups-cpu"),
    "CIFAR-10,": ("cifar10-outer-step", "cifar10-methods"),
    "SVHN": ("svhn-outer-step", "svhn-methods"),
    "CIFAR-100": ("cifar100-outer-step", "cifar100-methods"),
}
REGIMES = {"digits": "digits", "20 Newsgroups, 4,500": "newsgroups", "newsgroups, 4,500": "newsgroups"}
STUDIED = {"ce": "CE", "ls": "LS", "fl3": "FL-3", "mc": "MC, default"}
COLUMNS = {
    "cross-entropy (CE)": ("CE", "ECE"),
    "CE": ("CE", "ECE"),
    "CE + temperature": ("CE", "ECE after temperature"),
    "label smoothing 0.05": ("LS", "ECE"),
    "LS 0.05": ("LS", "ECE"),
    "focal loss": ("FL-3", "ECE"),
    "FL-3": ("FL-3", "ECE"),
    "MC": ("MC, default", "ECE"),
    "MC, default": ("MC, default", "ECE"),
    'MC, `"paper"`': ("MC", "ECE"),
    'MC, `"steady"`': ("MC, steady", "ECE"),
    "MC, paper": ("MC", "ECE"),
    "MC, steady": ("MC, steady", "ECE"),
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


@cache
def figures_of_study(regime):
    """The same of a regime of the study; its methods at the default step, and MC at the steady one."""
    of_methods = dict(zip(("digits", "newsgroups"), tables_of("results/study/methods.md"), strict=True))[regime]
    (of_budget,) = tables_of("results/study/budget.md")
    cells = {
        (STUDIED[row[0]], metric): cell
        for row in of_methods[1:]
        for metric, cell in zip(of_methods[0][1:4], row[1:4], strict=True)
        if row[0] in STUDIED
    }
    cells |= {("MC, steady", row[1]): row[of_budget[0].index("mc")] for row in of_budget[1:] if row[0] == regime}
    return {(method, METRICS[name]): {"mean": cell.split()[0], "seeds": "10"} for (method, name), cell in cells.items()}


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
    for row in body:
        found = {}
        for start, folders in FOLDERS.items():
            for folder in folders if row[0].startswith(start) else ():
                found |= {key: line for key, line in figures_of(folder).items() if line["mean"]}
        for start, regime in REGIMES.items():
            found |= figures_of_study(regime) if row[0].startswith(start) else {}
        seeds = re.search(r"(one|\d+) seed", row[0])[1].replace("one", "1")
        for name, cell in zip(head[1:], row[1:], strict=True):
            method, metric = COLUMNS[name]
            line = found.get((method, METRICS[metric]))
            assert cell == (f"{float(line['mean']):.2f}" if line else ""), (row[0], name)
            assert line is None or line["seeds"] == seeds, (row[0], name)
    assert len(body) == len(FOLDERS) + 2


def test_conformance_shows_the_answers_that_were_given():
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    found = json.loads((ROOT / "results" / "conformance" / "answers.json").read_text(encoding="utf-8"))
    assert f"last run {found['about']['date'].split()[0]}" in text
    for question in found["questions"]:
        answers = " | ".join(f"{answer['mark']} {answer['text']}" for answer in question["answers"].values())
        assert f"| {question['asked']} | {question['right']} | {answers} |" in text
    assert text.count("\n- **") == len(found["questions"])


def test_the_check_can_fail():
    line = {"mean": "4.587", "std": "0.631", "published_mean": ""}
    assert is_it("**4.59 ± 0.63**", line) and is_it("+4.59 ± 0.63", line)
    assert not any(is_it(cell, line) for cell in ("4.58 ± 0.63", "4.59 ± 0.64", "4.59", "4.59 ± 0.63 (1.00)", "-"))
