"""Summaries of evaluations: for the terminal, as Markdown for a pull request, and as JUnit XML."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from rich.markup import escape
from rich.table import Table

from metacal.cli.terminal import Console, one_line

if TYPE_CHECKING:
    from metacal.evaluation import Comparison, Evaluation, Groups
    from metacal.evaluation.gates import Check

ROWS = {
    "accuracy": "share right",
    "nll": "negative log-likelihood, nats",
    "brier": "squared distance",
    "brier_calibration": "calibration part",
    "brier_refinement": "refinement part",
    "ece": "top label, equal width",
    "mce": "worst of those bins",
    "adaptive_ece": "equal-mass bins",
    "classwise_ece": "one against the rest",
    "debiased_ece_l2": "l2, bias taken out",
    "sweep_ece": "bins by monotony",
    "smooth_ece": "no bins: a kernel",
    "positive_ece": "P(class 1), equal width",
    "roc_auc": "ranking by P(class 1)",
    "average_precision": "precision over recall",
    "multicalibration_error": "gaps by bin and group",
    "worst_group_ece": "of the first group",
    "aurc": "mean selective risk",
    "ood_auroc_max_prob": "OOD by confidence",
    "ood_fpr95_max_prob": "FPR at 95 % TPR",
    "ood_auroc_entropy": "OOD by entropy",
    "ood_fpr95_entropy": "FPR at 95 % TPR",
}
MORE_LABELS = {
    "positive_ece": "ECE of P(class 1)",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
    "multicalibration_error": "multicalibration error",
    "worst_group_ece": "ECE of the worst group",
}
"""Of shares that only some evaluations have, in Markdown."""

MOST_GROUPS = 20
"""Groups that the terminal shows; JSON has all."""

SIDE_BY_SIDE = 2
"""Files up to which there is room for what each figure is."""


def print_evaluations(evaluations: Sequence["Evaluation"], console: Console) -> None:
    """Print the figures side by side, then what they mean for each file."""
    from metacal.evaluation.evaluation import STREAMED

    is_alone, has_room = len(evaluations) == 1, len(evaluations) <= SIDE_BY_SIDE
    names = [evaluation.name for evaluation in evaluations]
    shown = [escape(one_line(each.name if names.count(each.name) == 1 else each.path)) for each in evaluations]
    if is_alone:
        console.say(_title(evaluations[0]), "bold")
    table = Table()
    table.add_column("measure", no_wrap=True)
    for heading in ["value", "95 % interval"] if is_alone else shown:
        table.add_column(heading, justify="right", overflow="fold", no_wrap=is_alone)
    if has_room:
        table.add_column("what it is", style="dim")
    mark = " *" if any(evaluation.is_sampled for evaluation in evaluations) else ""
    for name, meaning in ROWS.items():
        if any(name in evaluation.figures for evaluation in evaluations):
            cells = [cell for evaluation in evaluations for cell in _cells(evaluation, name, is_alone)]
            table.add_row(name + ("" if name in STREAMED else mark), *cells, *([meaning] if has_room else []))
    for risk in evaluations[0].coverage_at_risk:
        shares = [f"{evaluation.coverage_at_risk[risk]:.4f}" for evaluation in evaluations]
        label = f"coverage at {100 * risk:.0f} % risk{mark}"
        table.add_row(label, *shares, *([""] if is_alone else []), *(["share answered"] if has_room else []))
    console.print(table)
    for evaluation in evaluations:
        _print_meaning(evaluation, console, is_named=not is_alone)


def print_differences(comparison: "Comparison", console: Console) -> None:
    """Print how each model differs from the first, by paired rows, and which differences are beyond noise."""
    if comparison.problem is not None:
        console.say(comparison.problem, "dim")
    if not comparison.differences:
        return
    console.print()
    is_sampled = any(evaluation.is_sampled for evaluation in comparison.evaluations)
    rows = f"{comparison.evaluations[0].sample_rows:,} {'sampled ' if is_sampled else ''}rows"
    console.say(f"Compared with {comparison.evaluations[0].name} on the same {rows} (95 % intervals):", "bold")
    for difference in comparison.differences:
        console.say(difference.verdict, None if difference.is_beyond_noise else "dim")


def _title(evaluation: "Evaluation") -> str:
    kind = f"{evaluation.num_classes} classes" if evaluation.num_classes else "top-label figures only"
    return f"{evaluation.path}: {evaluation.rows:,} samples, {kind}"


def describe_read(read: dict[str, Any]) -> str:
    """Return one line on the columns that were read, their meaning and how it was determined."""
    scores = read["scores"] if len(read["scores"]) < 4 else [read["scores"][0], "...", read["scores"][-1]]
    parts = [f"{read['rows']:,} rows", f"{read['kind']} {' '.join(scores)} ({read['decided']})"]
    parts += [f"{role} {read[role]}" for role in ("prediction", "correct", "target") if read[role]]
    return f"Read {read['file']}: {'; '.join([', '.join(parts), *read['notes']])}."


def _cells(evaluation: "Evaluation", name: str, is_alone: bool) -> list[str]:
    value, low, high = (evaluation.figures.get(name + end, math.nan) for end in ("", "_low", "_high"))
    shown = _number(value) if name in evaluation.figures else ""
    interval = "" if math.isnan(low) else _ends(low, high, evaluation.one_sided.get(name))
    if is_alone:
        return [shown, interval]
    return [f"{shown}\n{interval}" if interval and name in ("accuracy", "ece") else shown]


def _ends(low: float, high: float, bound: str | None) -> str:
    if bound == "upper":
        return f"at most {_number(high)}"
    return f"at least {_number(low)}" if bound == "lower" else f"{_number(low)} .. {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def _print_meaning(evaluation: "Evaluation", console: Console, is_named: bool) -> None:
    from metacal.evaluation.evaluation import ERRORS, GROUP_ERRORS

    say = console.say
    if is_named:
        console.print()
        say(_title(evaluation), "bold")
    figures = evaluation.figures
    if evaluation.read is not None:
        say(describe_read(evaluation.read), "dim")
    say(evaluation.verdict)
    gain = evaluation.gain
    if math.isinf(figures.get("nll", 0.0)):
        say("NLL is infinite: a true class had a probability of exactly 0. Write logits, or probabilities above 0.")
        if gain is not None:
            ece = f"ECE from {gain.ece_before:.4f} to {gain.ece_after:.4f}"
            say(f"Temperature scaling (T = {gain.temperature:.3g}, cross-fitted, 0 as the least float) takes {ece}.")
    elif gain is not None:
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
    if evaluation.thresholds:
        _print_thresholds(evaluation, console)
    if evaluation.groups is not None:
        _print_groups(evaluation.groups, console)
    shown = ("ece",) if is_named else (*ERRORS, "positive_ece", *GROUP_ERRORS)
    if any(name in shown for name in evaluation.one_sided):
        say('"At most": chance alone explains such an error, so its interval is one-sided.', "dim")
    above = [name for name in shown if name in figures and figures[name] > figures[f"{name}_high"]]
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


def _print_thresholds(evaluation: "Evaluation", console: Console) -> None:
    name = evaluation.classes[1].name
    table = Table(title=f"Called {escape(one_line(name))} at or above", title_justify="left")
    for heading in ("threshold", "precision", "recall", "F1", "share called"):
        table.add_column(heading, justify="right")
    for row in evaluation.thresholds:
        cells = ["" if value is None else f"{value:.4f}" for value in row[1:5]]
        table.add_row(f"{row.threshold:.4g}{' (best F1)' if row.is_best else ''}", *cells)
    console.print(table)


def _print_groups(groups: "Groups", console: Console) -> None:
    table = Table(title=f"By {escape(one_line(groups.column))}, the worst first", title_justify="left")
    table.add_column("group", overflow="fold")
    for heading in ("rows", "accuracy", "confidence", "ece", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups.groups[:MOST_GROUPS]:
        figures = group.figures
        cells = [f"{group.rows:,}", _number(figures["accuracy"]), _number(group.confidence), _number(figures["ece"])]
        cells += [_ends(figures["ece_low"], figures["ece_high"], "upper" if figures["ece_low"] <= 0.0 else None)]
        table.add_row(escape(one_line(group.name)), *cells)
    console.print(table)
    if len(groups.groups) > MOST_GROUPS:
        console.say(f"{len(groups.groups) - MOST_GROUPS} more groups are in the JSON (--json).", "dim")
    for note in groups.notes:
        console.say(f"{groups.column}: {note}.", "dim")
    console.say(groups.verdict, "yellow" if groups.differ else None)


def to_markdown(comparison: "Comparison", checks: Sequence["Check"]) -> str:
    """Return figures, differences, groups and gates as GitHub and GitLab Markdown; names are escaped."""
    from metacal.evaluation.comparison import IN_PERCENT, LABELS

    evaluations = comparison.evaluations
    names = [_plain(evaluation.name) for evaluation in evaluations]
    counts = f"{evaluations[0].rows:,} rows" if len({each.rows for each in evaluations}) == 1 else "different rows"
    lines = [f"### Calibration of {' and '.join(names)} ({counts})", ""]
    rows = [["figure", *[f"{name} (95 % interval)" for name in names]]]
    for figure, label in (LABELS | MORE_LABELS).items():
        if any(figure in evaluation.figures for evaluation in evaluations):
            is_share = figure in IN_PERCENT or figure in MORE_LABELS
            rows.append(
                [label, *(_markdown_figure(evaluation.figures, figure, is_share) for evaluation in evaluations)]
            )
    lines += _markdown_table(rows)
    for name, evaluation in zip(names, evaluations, strict=True):
        said = _plain(" ".join(filter(None, (evaluation.verdict, evaluation.warning))))
        lines += [f"**{name}**: {said}" if len(names) > 1 else said, ""]
    if comparison.differences:
        lines += [f"Compared with {names[0]} on the same rows:", ""]
        verdicts = [(_plain(difference.verdict), difference.is_beyond_noise) for difference in comparison.differences]
        lines += [*(f"- **{said}**" if is_sure else f"- {said}" for said, is_sure in verdicts), ""]
    elif comparison.problem is not None:
        lines += [_plain(comparison.problem), ""]
    for name, evaluation in zip(names, evaluations, strict=True):
        if evaluation.groups is not None:
            lines += _markdown_groups(name, evaluation.groups)
    lines += [f"- {'✅' if check.holds else '❌'} {_plain(check.line)}" for check in checks]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_groups(name: str, groups: "Groups") -> list[str]:
    rows = [["group", "rows", "accuracy", "confidence", "ECE (95 % interval)"]]
    for group in groups.groups[:MOST_GROUPS]:
        shares = [f"{100.0 * share:.2f} %" for share in (group.figures["accuracy"], group.confidence)]
        rows.append([_plain(group.name), f"{group.rows:,}", *shares, _markdown_figure(group.figures, "ece", True)])
    more = len(groups.groups) - MOST_GROUPS
    lines = [f"{name} by {_plain(groups.column)}, the worst first. {_plain(groups.verdict)}", ""]
    return lines + _markdown_table(rows) + ([f"{more} more groups are left out here.", ""] if more > 0 else [])


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], f"|---|{'---:|' * (len(rows[0]) - 1)}", *lines[1:], ""]


def _markdown_figure(figures: Mapping[str, float], name: str, is_share: bool) -> str:
    scale, digits, unit = (100.0, 2, " %") if is_share else (1.0, 4, "")
    value, low, high = (scale * figures.get(name + end, math.nan) for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ""
    interval = "" if math.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})"
    return f"{value:.{digits}f}{unit}{interval}"


def _plain(text: str) -> str:
    """Escape text for Markdown: no markup, no line break, no mentions."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", one_line(text)).replace("@", "&#64;")


def to_junit(checks: Sequence["Check"]) -> str:
    """Return JUnit XML with a test case for each gate; the model is the class name."""
    counts = {"tests": str(len(checks)), "failures": str(sum(not check.holds for check in checks))}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "metacal evaluate", **counts})
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname=one_line(check.model), name=one_line(check.name))
        if not check.holds:
            ElementTree.SubElement(case, "failure", message=one_line(check.line)).text = one_line(check.line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
