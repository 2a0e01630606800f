"""Write docs/conformance.md: what metacal and other libraries answer to the same questions, and who is right.

Run: ``python -m benchmarks.conformance``. The answers go to results/conformance/answers.json too.
"""

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import conformance_traps as traps
from benchmarks import peers
from benchmarks.conformance_real import real_cases
from benchmarks.data import missing_predictions, real_predictions
from benchmarks.report import describe_run
from benchmarks.verdicts import LIBRARIES, NAN, OTHER, RIGHT, WRONG, Case, ask, sentence
from metacal.files import write_json

PAGE = Path("docs/conformance.md")
ANSWERS = Path("results/conformance/answers.json")
COMMAND = "make conformance"
Question = dict[str, Any]
OUTCOMES = {RIGHT: "✓ right", OTHER: "~ another reading", WRONG: "✗ wrong", NAN: "? NaN"}

INTRODUCTION = """# Conformance

The same questions put to metacal and to other libraries, each with the right answer and how it is known. Everything
below, the sentences included, is computed by `{command}` (last run {date}).

Versions: {versions}.

**How to read the tables.**

- ✓ is right, within 0.00001 unless the row says otherwise; where there is no answer, any exception is right, however it
  is worded;
- ~ is what another reading of the definition gives, named below the table;
- ✗ is wrong, ? is a NaN where an error was due, – means that the library has no such measure;
- a `ClassName` is the exception that was raised; "(warns)" means that a warning came with the value.
{missing}"""

GROUPS = (
    (
        "Very many samples",
        "Yes/no events with float32 probabilities in (0.95, 0.99), so all in the last of 15 bins.",
        traps.size_cases,
    ),
    ("Edges of bins", "Yes/no events; the value depends on which samples share a bin.", traps.edge_cases),
    ("Inputs", "1,000 predictions among 3 classes, top-label ECE over 15 bins, unless said.", traps.input_cases),
    ("Absent classes", "1,000 predictions among 3 classes; only labels 0 and 1 occur.", traps.class_cases),
    ("Equal-mass bins", "Top-label ECE over 15 bins of equal mass.", traps.equal_mass_cases),
    ("SmoothECE", "The kernel-smoothed error, of top labels among 3 classes.", traps.smooth_cases),
    (
        "Temperature",
        "5,000 predictions among 10 classes, drawn from softmax(logits / 3). netcal keeps 1 / T, turned over here; the "
        "L-BFGS recipe is the widespread one: 50 iterations on T from 1.5 with learning rate 0.01.",
        traps.temperature_cases,
    ),
    ("MMCE", "The kernel calibration error, plain and weighted.", traps.mmce_cases),
)


def main() -> None:
    """Ask everything and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, metavar="FILE", help=f"the page to write; {PAGE}")
    output = parser.parse_args().output
    torch.set_num_threads(2)
    sections: list[str] = []
    asked: list[Question] = []
    for name, (probs, targets) in real_predictions().items():
        intro = (
            f"{len(targets):,} test-set predictions among {probs.shape[1]} classes; top label and 15 bins unless said."
        )
        sections.append(_section(name, intro, real_cases(probs, targets), asked))
    for title, intro, cases in GROUPS:
        sections.append(_section(title, intro, cases(), asked))
    page = _introduction() + "\n" + _summary(asked) + "\n" + "\n".join(sections)
    output.write_text(page)
    if output == PAGE:
        write_json(ANSWERS, {"about": describe_run(COMMAND, peers.versions()), "questions": asked})
    print(f"Wrote {output}")


def _introduction() -> str:
    known = peers.versions() | {"torch": torch.__version__, "numpy": version("numpy")}
    versions = ", ".join(f"{name} {number}" for name, number in known.items() if name != peers.PYCALIB)
    missing = missing_predictions()
    return INTRODUCTION.format(
        command=COMMAND,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        versions=versions,
        missing="" if missing is None else f"\n{missing}\n",
    )


def _summary(asked: Sequence[Question]) -> str:
    """How often each library was right, over the questions that it has a measure for."""
    lines = ["| library | " + " | ".join(OUTCOMES.values()) + " | asked |", "|---|" + "---|" * (len(OUTCOMES) + 1)]
    for name in LIBRARIES:
        marks = [question["answers"][name]["mark"] for question in asked if name in question["answers"]]
        counts = [marks.count(mark) for mark in OUTCOMES]
        lines.append(f"| {name} | " + " | ".join(map(str, [*counts, sum(counts)])) + " |")
    return "\n".join(lines) + "\n"


def _section(title: str, introduction: str, cases: Sequence[Case], asked: list[Question]) -> str:
    """A heading, a table with a row a question, and below it a paragraph a question; adds what was asked to a list."""
    columns = cases[0].libraries
    lines = [f"## {title}", "", introduction, ""]
    lines += ["| asked | right answer | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    remarks = []
    for case in cases:
        answers = ask(case)
        texts = {name: {"mark": answer.mark, "text": answer.text} for name, answer in answers.items()}
        asked.append({"group": title, "asked": case.asked, "right": case.right_text(), "answers": texts})
        cells = " | ".join(f"{answer.mark} {answer.text}" for answer in answers.values())
        lines.append(f"| {case.asked} | {case.right_text()} | {cells} |")
        remarks.append(f"- **{case.asked[0].upper()}{case.asked[1:]}** ({case.known}). {sentence(case, answers)}")
    return "\n".join([*lines, "", *remarks, ""])


if __name__ == "__main__":
    main()
