"""What metacal and other libraries answer to the same questions, and who is right.

Run: ``python -m benchmarks.conformance``. The answers go to results/conformance/answers.json, from which
``python -m benchmarks.pages`` makes docs/conformance.md.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks import conformance_traps as traps
from benchmarks import peers
from benchmarks.conformance_real import real_cases
from benchmarks.data import missing_predictions, real_predictions
from benchmarks.report import describe_run
from benchmarks.verdicts import LIBRARIES, Case, ask, sentence
from metacal.files import write_json

ANSWERS = Path("results/conformance/answers.json")
COMMAND = "make conformance"
Question = dict[str, Any]

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
    """Ask everything and keep the answers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("--output", type=Path, default=ANSWERS, metavar="FILE", help=f"the file to write; {ANSWERS}")
    output = parser.parse_args().output
    torch.set_num_threads(2)
    groups: list[tuple[str, str]] = []
    questions: list[Question] = []
    for name, (probs, targets) in real_predictions().items():
        size = f"{len(targets):,} test-set predictions among {probs.shape[1]} classes"
        groups.append((name, f"{size}; top label and 15 bins unless said."))
        questions += [question(name, case) for case in real_cases(probs, targets)]
    for title, introduction, cases in GROUPS:
        groups.append((title, introduction))
        questions += [question(title, case) for case in cases()]
    answers = {
        "about": describe_run(COMMAND, peers.versions()),
        "libraries": LIBRARIES,
        "missing": missing_predictions(),
        "groups": [{"title": title, "introduction": introduction} for title, introduction in groups],
        "questions": questions,
    }
    write_json(output, answers)
    print(f"Wrote {output}")


def question(group: str, case: Case) -> Question:
    """A question, the right answer, what each library answers, and what to make of it."""
    answers = ask(case)
    return {
        "group": group,
        "asked": case.asked,
        "right": case.right_text(),
        "answers": {name: {"mark": answer.mark, "text": answer.text} for name, answer in answers.items()},
        "remark": f"**{case.asked[0].upper()}{case.asked[1:]}** ({case.known}). {sentence(case, answers)}",
    }


if __name__ == "__main__":
    main()
