"""A question with a known answer, what each library says to it, and a sentence on who is right."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peers import METACAL, NETCAL, RELPLOT, TORCHMETRICS, UNCERTAINTY, Calls

LIBRARIES = (METACAL, TORCHMETRICS, NETCAL, RELPLOT, UNCERTAINTY)
TOLERANCE = 1e-5
RIGHT, OTHER, WRONG, ABSENT, NAN = "✓", "~", "✗", "–", "?"


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        asked: what was asked, short.
        known: how the right answer is known.
        rule: one sentence on why it is right.
        calls: the libraries that can be asked.
        right: the right value; None where there is none.
        error_is_right: whether refusing is right (where there is no right value, or none that has to exist).
        any_finite: whether any finite number will do.
        readings: other values that the definition allows, by what they do differently.
        tolerance: how far a right value may be off.
        libraries: the columns of this question.
    """

    asked: str
    known: str
    rule: str
    calls: Calls
    right: float | None = None
    error_is_right: bool = False
    any_finite: bool = False
    readings: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    libraries: Sequence[str] = LIBRARIES

    def right_text(self) -> str:
        """The right answer in words."""
        if self.any_finite:
            return "finite"
        if self.right is None:
            return "an error"
        return figure(self.right) + (" or an error" if self.error_is_right else "")


@dataclass(frozen=True)
class Answer:
    """What a library said.

    Attributes:
        mark: right, right in another reading, wrong, absent, or NaN where an error was due.
        text: the value, the exception's class, or "no such measure".
        off_by: distance from the right value; NaN if that means nothing.
        reading: which other reading of the definition the value fits.
    """

    mark: str
    text: str
    off_by: float = math.nan
    reading: str = ""


def ask(case: Case) -> dict[str, Answer]:
    """Put the question to every library."""
    return {name: _answer(case, name) for name in case.libraries}


def _answer(case: Case, name: str) -> Answer:
    if name not in case.calls:
        return Answer(ABSENT, "no such measure")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = case.calls[name]()
    except Exception as error:  # whatever a library raises is its answer
        return Answer(RIGHT if case.error_is_right else WRONG, f"`{type(error).__name__}`")
    # Deprecations are about the library's own code, not about the answer.
    warned = any(not issubclass(each.category, DeprecationWarning | FutureWarning) for each in caught)
    text = figure(value) + (" (warns)" if warned else "")
    if case.any_finite:
        return Answer(RIGHT if math.isfinite(value) else WRONG, text)
    if case.right is None:
        return Answer(NAN if math.isnan(value) else WRONG, text)
    off_by = abs(value - case.right)
    if off_by <= case.tolerance:
        return Answer(RIGHT, text, off_by)
    for reading, other in case.readings.items():
        if abs(value - other) <= case.tolerance:
            return Answer(OTHER, text, off_by, reading)
    return Answer(WRONG, text, off_by)


def sentence(case: Case, answers: Mapping[str, Answer]) -> str:
    """Who is right, from the answers alone, and why, from the rule."""
    parts = []
    right = [name for name, answer in answers.items() if answer.mark == RIGHT]
    if right and case.right is None and not case.any_finite:
        parts.append(f"{listed(right)} {'raise' if len(right) > 1 else 'raises'} an error")
    elif right:
        parts.append(f"{listed(right)} {_verb(right)} right")
    for reading in case.readings:
        names = [name for name, answer in answers.items() if answer.reading == reading]
        if names:
            parts.append(f"{listed(names)} {'follow' if len(names) > 1 else 'follows'} another reading, {reading}")
    for name, answer in answers.items():
        if answer.mark == WRONG:
            parts.append(f"{name} {_fault(case, answer)}")
        elif answer.mark == NAN:
            parts.append(f"{name} returns NaN and does not say why")
    absent = [name for name, answer in answers.items() if answer.mark == ABSENT]
    if absent:
        parts.append(f"{listed(absent)} {'have' if len(absent) > 1 else 'has'} no such measure")
    return "; ".join(parts) + ". " + case.rule


def _fault(case: Case, answer: Answer) -> str:
    if answer.text.startswith("`"):
        return f"raises {answer.text} on a question that has an answer"
    if case.right is None or math.isnan(answer.off_by):
        return f"returns {answer.text} " + ("without complaint" if "warns" not in answer.text else "with a warning")
    return f"is off by {answer.off_by:.2g}"


def figure(value: float) -> str:
    """Seven decimals: enough to see a float32 rounding."""
    return f"{value:.7f}" if math.isfinite(value) else str(value)


def listed(names: Sequence[str]) -> str:
    """Names as English has them: "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
