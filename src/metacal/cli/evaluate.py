"""``metacal evaluate``: how calibrated the predictions in files are, how certain that is, what would fix it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from metacal.cli import options
from metacal.cli.terminal import Console, one_line
from metacal.errors import InvalidValueError
from metacal.files import write_json

if TYPE_CHECKING:
    from metacal.evaluation import Comparison, Difference, Evaluation

ROWS = {
    "accuracy": "share right",
    "nll": "negative log-likelihood, nats",
    "brier": "squared distance",
    "brier_calibration": "calibration part",
    "brier_refinement": "refinement part",
    "ece": "equal-width bins",
    "mce": "worst of those bins",
    "adaptive_ece": "equal-mass bins",
    "classwise_ece": "one against the rest",
    "debiased_ece_l2": "l2, bias taken out",
    "sweep_ece": "bins by monotony",
    "smooth_ece": "no bins: a kernel",
    "aurc": "mean selective risk",
    "ood_auroc_max_prob": "OOD by confidence",
    "ood_fpr95_max_prob": "FPR at 95 % TPR",
    "ood_auroc_entropy": "OOD by entropy",
    "ood_fpr95_entropy": "FPR at 95 % TPR",
}

SIDE_BY_SIDE = 2
"""Files up to which there is room for what each figure is."""


def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="CSV, Parquet, Arrow, NPZ, NPY, JSON (lines), .pt, .safetensors or .eval."),
    ],
    probs: options.Probs = None,
    logits: options.Logits = None,
    target: options.Target = None,
    class_names: options.ClassNames = None,
    percent: options.Percent = False,
    file_format: options.Format = "auto",
    ood: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Out-of-distribution predictions: adds detection AUROC and FPR95."),
    ] = None,
    json_file: options.JSONFile = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Exit with 1 if a figure is higher, e.g. ece=0.05."),
    ] = None,
    fail_below: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Exit with 1 if a figure is lower, e.g. accuracy=0.9."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with this: the --json of an earlier evaluation, or predictions."),
    ] = None,
    fail_if_worse: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Exit with 1 if a figure is worse than the baseline's beyond noise."),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the calibration errors.")] = 15,
    sample: options.Sample = 100_000,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
) -> None:
    """Say how calibrated the predictions in a file are, how certain that is, and what would fix it.

    Columns are found by name: prob_*, p_* or logit_* for the scores (or one column probs or logits that holds
    lists; one column p is a binary model's), and target, label, y or ground_truth. Or name them. What the scores are
    is never guessed from their values. Several files are shown side by side.

    Examples:
    [bold]metacal evaluate test.parquet[/]

    [bold]metacal evaluate test.csv --probs 'score_*' --target truth --json scores.json[/]

    [bold]metacal evaluate old.npz new.npz --fail-above ece=0.05[/]

    [bold]metacal evaluate test.parquet --ood other.parquet[/]

    [bold]metacal evaluate new.npz --baseline old.json --fail-if-worse ece[/]

    Exit status: 0 good, 1 a figure is beyond its bound, 2 bad input.
    """
    from metacal.evaluation.baseline import read_baseline, unpaired_difference
    from metacal.evaluation.comparison import Comparison
    from metacal.evaluation.evaluation import FIGURES, MEASURES, OOD_FIGURES, evaluate_file
    from metacal.evaluation.prediction_file import PredictionFile

    options.check_places(json=json_file)
    keys = FIGURES if ood is None else FIGURES + OOD_FIGURES
    bounds = [(*parse_bound(text, "--fail-above", keys), True) for text in fail_above or []]
    bounds += [(*parse_bound(text, "--fail-below", keys), False) for text in fail_below or []]
    gates = fail_if_worse or []
    if (baseline is None) != (not gates):
        raise InvalidValueError("`--baseline FILE` and `--fail-if-worse KEY` must be given together, got one of them.")
    if any(gate not in MEASURES for gate in gates):
        raise InvalidValueError(f"`--fail-if-worse` must name one of {', '.join(MEASURES)}, got {', '.join(gates)}.")
    old = read_baseline(baseline, gates) if baseline is not None and baseline.suffix.lower() == ".json" else None
    if baseline is not None and old is None:
        files = [baseline, *files]
    keywords: dict[str, Any] = {"probs": probs, "logits": logits, "class_names": options.read_class_names(class_names)}
    keywords |= {"percent": percent, "top_label": True, "file_format": file_format}
    opened = [model for path in files for model in PredictionFile.models(path, target=target, **keywords)]
    outside = [] if ood is None else PredictionFile.models(ood, needs_target=False, **keywords)
    if len(outside) > 1 and [file.name for file in outside] != [file.name for file in opened]:
        raise InvalidValueError(f"`--ood` must have one array, or those of the models that are evaluated, got {ood}.")
    evaluations = []
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for number, file in enumerate(opened):
            shown = one_line(file.name)
            task = progress.add_task(f"reading {shown}", total=None)

            def show(rows: int, task: Any = task, name: str = shown) -> None:
                progress.update(task, description=f"{name}: {rows:,} rows")

            others = outside[number if len(outside) > 1 else 0] if outside else None
            evaluations.append(
                evaluate_file(
                    file, ood=others, num_bins=bins, sample=sample, num_resamples=resamples, seed=seed, on_rows=show
                )
            )
            progress.remove_task(task)
    comparison = Comparison.of(evaluations, resamples, seed)
    print_evaluations(evaluations, Console())
    print_differences(comparison, Console())
    if json_file is not None:
        write_json(json_file, evaluations[0].to_dict() if len(evaluations) == 1 else comparison.to_dict())
    judged = evaluations[1:] if baseline is not None and old is None else evaluations
    kept = [check_bound(evaluation, *bound) for evaluation in judged for bound in bounds]  # says so of each
    differences = comparison.differences
    if baseline is not None and old is None and comparison.problem is not None:
        raise InvalidValueError(f"`--baseline` must hold the same rows, got {baseline}: {comparison.problem}")
    if baseline is not None and old is not None:
        differences = [unpaired_difference(gate, old, new, baseline.stem) for new in evaluations for gate in gates]
    kept += [check_difference(difference) for difference in differences if difference.figure in gates]
    if not all(kept):
        raise typer.Exit(1)


def parse_bound(text: str, option: str, keys: tuple[str, ...]) -> tuple[str, float]:
    """``"ece=0.05"`` -> ``("ece", 0.05)``; refused before any work is done if there is no such figure."""
    key, _, number = (part.strip() for part in text.partition("="))
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise InvalidValueError(f"`{option}` must be KEY=NUMBER, such as ece=0.05, got {text!r}.")
    if key not in keys:
        raise InvalidValueError(f"`{option}` must name one of {', '.join(keys)}, got {key!r}.")
    return key, bound


def check_bound(evaluation: "Evaluation", key: str, bound: float, is_ceiling: bool) -> bool:
    """Say whether a figure keeps its bound; an infinite or undefined figure does not."""
    if key not in evaluation.figures:
        raise InvalidValueError(f"{evaluation.path}: has no {key}, only top-label confidences; name another figure.")
    value = evaluation.figures[key]
    holds = value <= bound if is_ceiling else value >= bound
    verb = "is" if holds else "FAILS:"
    side = ("at most" if holds else "above") if is_ceiling else ("at least" if holds else "below")
    line = f"{evaluation.path}: {key} {value:.4g} {verb} {side} {bound:g}"
    Console(stderr=not holds).say(line, "green" if holds else "bold red")
    return holds


def check_difference(difference: "Difference") -> bool:
    """Say whether a figure is no worse than the baseline's, beyond noise."""
    line = difference.verdict if not difference.is_worse else f"FAILS: worse than the baseline: {difference.verdict}"
    Console(stderr=difference.is_worse).say(line, "bold red" if difference.is_worse else "green")
    return not difference.is_worse


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
    bound = evaluation.one_sided.get(name)
    if bound == "upper":
        return f"at most {_number(high)}"
    return f"at least {_number(low)}" if bound == "lower" else f"{_number(low)} .. {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def _print_meaning(evaluation: "Evaluation", console: Console, is_named: bool) -> None:
    from metacal.evaluation.evaluation import ERRORS

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
    shown = ("ece",) if is_named else ERRORS
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
