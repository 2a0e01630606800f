"""What ``metacal evaluate`` prints: a table of figures, a column for each file, and what they mean."""

import math
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from metacal.cli.terminal import Console, one_line
from metacal.evaluation.evaluation import ERRORS, STREAMED, Evaluation

ROWS = {
    "accuracy": "share right",
    "nll": "log-likelihood, nats",
    "brier": "squared distance",
    "brier_calibration": "bins would mend this",
    "brier_refinement": "and not this",
    "ece": "equal-width bins",
    "mce": "worst of those bins",
    "adaptive_ece": "equal-mass bins",
    "classwise_ece": "one against the rest",
    "debiased_ece": "l2, bias taken out",
    "sweep_ece": "bins by monotony",
    "smooth_ece": "no bins: a kernel",
    "aurc": "mean selective risk",
    "ood_auroc_max_prob": "OOD told by confidence",
    "ood_fpr95_max_prob": "mistaken, 95 % kept",
    "ood_auroc_entropy": "OOD told by entropy",
    "ood_fpr95_entropy": "mistaken, 95 % kept",
}

SIDE_BY_SIDE = 2
"""Files up to which there is room for what each figure is."""


def print_evaluations(evaluations: Sequence[Evaluation], console: Console) -> None:
    """Draw the figures side by side, then what they mean, file by file."""
    if len(evaluations) == 1:
        console.say(_title(evaluations[0]), "bold")
    table = Table()
    table.add_column("measure", no_wrap=True)
    for heading in _headings(evaluations):
        table.add_column(heading, justify="right", overflow="fold")
        if len(evaluations) == 1:
            table.add_column("95 % interval", justify="right", no_wrap=True)
    if len(evaluations) <= SIDE_BY_SIDE:
        table.add_column("what it is", style="dim")
    is_sampled = any(evaluation.is_sampled for evaluation in evaluations)
    for name, meaning in ROWS.items():
        if name not in evaluations[0].figures:
            continue
        mark = " *" if is_sampled and name not in STREAMED else ""
        cells = [cell for evaluation in evaluations for cell in _cells(evaluation, name, len(evaluations) == 1)]
        table.add_row(name + mark, *cells, *([meaning] if len(evaluations) <= SIDE_BY_SIDE else []))
    for risk in evaluations[0].coverage_at_risk:
        shares = [f"{evaluation.coverage_at_risk[risk]:.4f}" for evaluation in evaluations]
        blank = [""] if len(evaluations) == 1 else []
        label = f"coverage at {risk:.0%} risk".replace("%", " %")
        shown = ["share answered"] if len(evaluations) <= SIDE_BY_SIDE else []
        table.add_row(label + (" *" if is_sampled else ""), *shares, *blank, *shown)
    console.print(table)
    for evaluation in evaluations:
        _print_meaning(evaluation, console, is_named=len(evaluations) > 1)


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.path}: {evaluation.rows:,} samples, {evaluation.num_classes} classes"


def _headings(evaluations: Sequence[Evaluation]) -> list[str]:
    if len(evaluations) == 1:
        return ["value"]
    names = [evaluation.name for evaluation in evaluations]
    return [escape(one_line(e.name if names.count(e.name) == 1 else e.path)) for e in evaluations]


def _cells(evaluation: Evaluation, name: str, with_interval: bool) -> list[str]:
    value, interval = _number(evaluation.figures[name]), _interval(evaluation, name)
    if with_interval:
        return [value, interval]
    return [f"{value}\n{interval}" if interval and name in ("accuracy", "ece") else value]


def _interval(evaluation: Evaluation, name: str) -> str:
    low, high = (evaluation.figures.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
    if math.isnan(low):
        return ""
    bound = evaluation.one_sided.get(name)
    if bound == "upper":
        return f"at most {_number(high)}"
    return f"at least {_number(low)}" if bound == "lower" else f"{_number(low)} .. {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def _print_meaning(evaluation: Evaluation, console: Console, is_named: bool) -> None:
    say = console.say
    if is_named:
        console.print()
        say(_title(evaluation), "bold")
    figures = evaluation.figures
    say(evaluation.verdict)
    gain = evaluation.gain
    if gain is not None:
        helps = "takes" if gain.helps else "would not help: it takes"
        bound = ", the end of its range" if gain.at_bound else ""
        before, after = _number(gain.nll_before), _number(gain.nll_after)
        say(
            f"Temperature scaling (T = {gain.temperature:.3g}{bound}, cross-fitted) {helps} NLL from {before} to "
            f"{after} and ECE from {gain.ece_before:.4f} to {gain.ece_after:.4f}."
        )
    if evaluation.confused:
        pairs = [f"{pair.target} as {pair.predicted} ({pair.samples})" for pair in evaluation.confused[:5]]
        say(f"Most often confused: {', '.join(pairs)}.")
    worst = sorted(evaluation.classes, key=lambda row: row.ece, reverse=True)[:3]
    if evaluation.num_classes > 2:
        listed = ", ".join(f"{row.name} ({row.ece:.4f})" for row in worst)
        say(f"Worst calibrated classes (one against the rest): {listed}.")
    shown = ("ece",) if is_named else ERRORS
    if any(name in shown for name in evaluation.one_sided):
        say('"At most": chance alone explains such an error, so its interval is one-sided.', "dim")
    above = [name for name in shown if figures[name] > figures[f"{name}_high"]]
    if above:
        lies = f"{', '.join(above)} {'lies' if len(above) == 1 else 'lie'}"
        say(f"Few samples make a measured error too high: {lies} above the interval of the true one.", "dim")
    if evaluation.is_sampled:
        say(
            f"* of a random sample of {evaluation.sample_rows:,} of the {evaluation.rows:,} rows, as are temperature, "
            "pairs and classes.",
            "dim",
        )
    if evaluation.warning is not None:
        say(evaluation.warning, "yellow")
