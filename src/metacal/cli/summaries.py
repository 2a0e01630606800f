"""Evaluations for people: on the terminal, in Markdown for a pull request, as JUnit XML for its checks."""

import math
import re
from collections.abc import Sequence
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
MOST_GROUPS = 20
"""Groups that the terminal shows; JSON has all."""

SIDE_BY_SIDE = 2
"""Files up to which there is room for what each figure is."""


def print_evaluations(evaluations: Sequence["Evaluation"], console: Console) -> None:
    """Draw the figures side by side, then what they mean, file by file."""
    from metacal.evaluation.evaluation import STREAMED

    is_alone, has_room = len(evaluations) == 1, len(evaluations) <= SIDE_BY_SIDE
    if is_alone:
        console.say(_title(evaluations[0]), "bold")
    table = Table()
    table.add_column("measure", no_wrap=True)
    for heading in _headings(evaluations):
        table.add_column(heading, justify="right", overflow="fold")
        if is_alone:
            table.add_column("95 % interval", justify="right", no_wrap=True)
    if has_room:
        table.add_column("what it is", style="dim")
    mark = " *" if any(evaluation.is_sampled for evaluation in evaluations) else ""
    for name, meaning in ROWS.items():
        if any(name in evaluation.figures for evaluation in evaluations):
            cells = [cell for evaluation in evaluations for cell in _cells(evaluation, name, is_alone)]
            table.add_row(name + ("" if name in STREAMED else mark), *cells, *([meaning] if has_room else []))
    for risk in evaluations[0].coverage_at_risk:
        shares = [f"{evaluation.coverage_at_risk[risk]:.4f}" for evaluation in evaluations]
        label = f"coverage at {risk:.0%} risk".replace("%", " %")
        table.add_row(label + mark, *shares, *([""] if is_alone else []), *(["share answered"] if has_room else []))
    console.print(table)
    for evaluation in evaluations:
        _print_meaning(evaluation, console, is_named=not is_alone)


def print_differences(comparison: "Comparison", console: Console) -> None:
    """Say by how much each model differs from the first, row by row, and which differences are beyond noise."""
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
    """One line: which columns, what they hold, how that was decided."""
    scores = read["scores"] if len(read["scores"]) < 4 else [read["scores"][0], "...", read["scores"][-1]]
    parts = [f"{read['rows']:,} rows", f"{read['kind']} {' '.join(scores)} ({read['decided']})"]
    parts += [f"{role} {read[role]}" for role in ("prediction", "correct", "target") if read[role]]
    return f"Read {read['file']}: {'; '.join([', '.join(parts), *read['notes']])}."


def _headings(evaluations: Sequence["Evaluation"]) -> list[str]:
    if len(evaluations) == 1:
        return ["value"]
    names = [evaluation.name for evaluation in evaluations]
    return [escape(one_line(e.name if names.count(e.name) == 1 else e.path)) for e in evaluations]


def _cells(evaluation: "Evaluation", name: str, with_interval: bool) -> list[str]:
    figure = evaluation.figures.get(name)
    value, interval = "" if figure is None else _number(figure), _interval(evaluation, name)
    if with_interval:
        return [value, interval]
    return [f"{value}\n{interval}" if interval and name in ("accuracy", "ece") else value]


def _interval(evaluation: "Evaluation", name: str) -> str:
    low, high = (evaluation.figures.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
    if math.isnan(low):
        return ""
    return _ends(low, high, evaluation.one_sided.get(name))


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
    """Figures, differences, groups and gates as GitHub and GitLab show them; names in a file stay text."""
    from metacal.evaluation.comparison import IN_PERCENT, LABELS

    evaluations = comparison.evaluations
    names = [_plain(evaluation.name) for evaluation in evaluations]
    counts = f"{evaluations[0].rows:,} rows" if len({each.rows for each in evaluations}) == 1 else "different rows"
    lines = [f"### Calibration of {' and '.join(names)} ({counts})", ""]
    lines += _markdown_rows(["figure", *[f"{name} (95 % interval)" for name in names]])
    labels = LABELS | {
        "positive_ece": "ECE of P(class 1)",
        "roc_auc": "ROC-AUC",
        "average_precision": "average precision",
    }
    labels |= {"multicalibration_error": "multicalibration error", "worst_group_ece": "ECE of the worst group"}
    for figure, label in labels.items():
        if any(figure in evaluation.figures for evaluation in evaluations):
            is_share = figure in IN_PERCENT or figure not in LABELS
            cells = [_markdown_figure(evaluation, figure, 100.0 if is_share else 1.0) for evaluation in evaluations]
            lines.append(f"| {label} | {' | '.join(cells)} |")
    lines.append("")
    for name, evaluation in zip(names, evaluations, strict=True):
        sentences = [evaluation.verdict, *([evaluation.warning] if evaluation.warning else [])]
        lines.append(f"{f'**{name}**: ' if len(names) > 1 else ''}{_plain(' '.join(sentences))}")
        lines.append("")
    if comparison.differences:
        lines.append(f"Compared with {names[0]} on the same rows:")
        lines.append("")
        for difference in comparison.differences:
            said = _plain(difference.verdict)
            lines.append(f"- **{said}**" if difference.is_beyond_noise else f"- {said}")
        lines.append("")
    elif comparison.problem is not None:
        lines += [_plain(comparison.problem), ""]
    for name, evaluation in zip(names, evaluations, strict=True):
        if evaluation.groups is not None:
            lines += [*_markdown_groups(name, evaluation.groups), ""]
    lines += [f"- {'✅' if check.holds else '❌'} {_plain(check.line)}" for check in checks]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_groups(name: str, groups: "Groups") -> list[str]:
    lines = [f"{name} by {_plain(groups.column)}, the worst first. {_plain(groups.verdict)}", ""]
    lines += _markdown_rows(["group", "rows", "accuracy", "confidence", "ECE (95 % interval)"])
    for group in groups.groups[:MOST_GROUPS]:
        ece, low, high = (100.0 * group.figures[f"ece{end}"] for end in ("", "_low", "_high"))
        shares = f"{100.0 * group.figures['accuracy']:.2f} % | {100.0 * group.confidence:.2f} %"
        lines.append(f"| {_plain(group.name)} | {group.rows:,} | {shares} | {ece:.2f} % ({low:.2f} to {high:.2f}) |")
    more = len(groups.groups) - MOST_GROUPS
    return [*lines, "", f"{more} more groups are left out here."] if more > 0 else lines


def _markdown_rows(headings: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(headings)} |", f"|---|{'---:|' * (len(headings) - 1)}"]


def _markdown_figure(evaluation: "Evaluation", figure: str, scale: float) -> str:
    value, low, high = (scale * evaluation.figures.get(figure + end, math.nan) for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ""
    digits, unit = (2, " %") if scale > 1.0 else (4, "")
    interval = "" if math.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})"
    return f"{value:.{digits}f}{unit}{interval}"


def _plain(text: str) -> str:
    """Text that Markdown shows as it stands: no markup, no line break, and nobody is notified."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", one_line(text)).replace("@", "&#64;")


def to_junit(checks: Sequence["Check"]) -> str:
    """JUnit XML: a test case for each gate, of the class that is its model."""
    failures = str(sum(not check.holds for check in checks))
    root = ElementTree.Element("testsuites", tests=str(len(checks)), failures=failures)
    suite = ElementTree.SubElement(
        root, "testsuite", name="metacal evaluate", tests=str(len(checks)), failures=failures
    )
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname=one_line(check.model), name=one_line(check.name))
        if not check.holds:
            ElementTree.SubElement(case, "failure", message=one_line(check.line)).text = one_line(check.line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
