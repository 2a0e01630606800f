"""``metacal evaluate``: how well calibrated prediction files are, how certain that is, and what would fix it."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from metacal.cli import options
from metacal.cli.summaries import print_differences, print_evaluations, to_junit, to_markdown
from metacal.cli.terminal import Console, one_line
from metacal.errors import InvalidFileError, InvalidValueError
from metacal.files import json_text, write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from metacal.evaluation.prediction_file import PredictionFile

STANDARD_OUTPUT = "-"


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
    multilabel: options.Multilabel = False,
    ignore: options.Ignore = None,
    drop_unlabelled: options.DropUnlabelled = False,
    ood: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Out-of-distribution predictions: adds detection AUROC and FPR95."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also every figure for each group of rows, by the values of a column."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write all numbers as JSON; - is standard output."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown, for a pull request.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML: each --fail-... is a test case.")
    ] = None,
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

    [bold]metacal evaluate test.parquet --by country --markdown summary.md[/]

    Exit status: 0 good, 1 a figure is beyond its bound, 2 bad input.
    """
    from metacal.evaluation import evaluation as figures
    from metacal.evaluation.comparison import Comparison
    from metacal.evaluation.gates import Bound, check_difference, read_baseline, unpaired_difference
    from metacal.evaluation.prediction_file import PredictionFile

    written = {"json": json_file, "markdown": markdown, "junit": junit}
    options.check_places(**written)
    is_printed = [str(path) == STANDARD_OUTPUT for path in written.values()]
    if sum(is_printed) > 1:
        raise InvalidValueError("Only one of `--json`, `--markdown` and `--junit` can be `-`; name a file.")
    keys = figures.FIGURES + figures.BINARY_FIGURES
    keys += (() if ood is None else figures.OOD_FIGURES) + (() if by is None else figures.GROUP_FIGURES)
    bounds = [Bound.parse(text, keys, is_ceiling=True) for text in fail_above or []]
    bounds += [Bound.parse(text, keys, is_ceiling=False) for text in fail_below or []]
    gates = fail_if_worse or []
    if (baseline is None) != (not gates):
        raise InvalidValueError("`--baseline FILE` and `--fail-if-worse KEY` must be given together, got one of them.")
    if any(gate not in figures.MEASURES for gate in gates):
        known = ", ".join(figures.MEASURES)
        raise InvalidValueError(f"`--fail-if-worse` must name one of {known}, got {', '.join(gates)}.")
    if junit is not None and not bounds and not gates:
        raise InvalidValueError("`--junit` must have a gate to report; add --fail-above, --fail-below or --baseline.")
    old = None if baseline is None else read_baseline(baseline, gates)
    is_paired = baseline is not None and old is None
    columns: dict[str, Any] = {"probs": probs, "logits": logits, "class_names": options.read_class_names(class_names)}
    columns |= {"percent": percent, "top_label": True, "file_format": file_format}
    judged_by: dict[str, Any] = {"target": target, "by": by, "multilabel": multilabel, "ignore": ignore}
    judged_by["drop_unlabelled"] = drop_unlabelled
    paths = [baseline, *files] if baseline is not None and is_paired else files
    opened = [model for path in paths for model in PredictionFile.models(path, **judged_by, **columns)]
    outside = [] if ood is None else PredictionFile.models(ood, needs_target=False, **columns)
    if len(outside) > 1 and [file.name for file in outside] != [file.name for file in opened]:
        raise InvalidValueError(f"`--ood` must have one array, or those of the models that are evaluated, got {ood}.")
    places, problem = align(opened)
    evaluations = []
    with Console(stderr=True).status("Reading") as status:

        def show(name: str, rows: int) -> None:
            status.update(f"{escape(one_line(name))}: {rows:,} rows")

        for number, file in enumerate(opened):
            evaluation = figures.evaluate_file(
                file,
                ood=outside[number % len(outside)] if outside else None,
                num_bins=bins,
                sample=sample,
                num_resamples=resamples,
                seed=seed,
                places=None if places is None else places[number],
                on_rows=partial(show, file.name),
            )
            evaluations.append(evaluation)
    comparison = Comparison(evaluations, problem=problem)
    if len(evaluations) > 1 and problem is None:
        comparison = Comparison.of(evaluations, resamples, seed)
    if is_paired and comparison.problem is not None:
        raise InvalidValueError(f"`--baseline` must hold the same rows, got {baseline}: {comparison.problem}")
    checks = [bound.check(each) for each in evaluations[1 if is_paired else 0 :] for bound in bounds]
    differences = [] if baseline is None else comparison.differences
    if baseline is not None and old is not None:
        differences = [unpaired_difference(gate, old, new, baseline.stem) for new in evaluations for gate in gates]
    checks += [check_difference(difference) for difference in differences if difference.figure in gates]
    console = Console(stderr=any(is_printed))
    print_evaluations(evaluations, console)
    print_differences(comparison, console)
    for check in checks:
        (console if check.holds else Console(stderr=True)).say(check.line, "green" if check.holds else "bold red")
    makers: dict[str, Callable[[], str]] = {
        "json": lambda: json_text(evaluations[0].to_dict() if len(evaluations) == 1 else comparison.to_dict()),
        "markdown": lambda: to_markdown(comparison, checks),
        "junit": lambda: to_junit(checks),
    }
    for kind, path in written.items():
        if path is not None and str(path) == STANDARD_OUTPUT:
            sys.stdout.write(makers[kind]())
        elif path is not None:
            write_text(path, makers[kind]())
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


def align(files: Sequence["PredictionFile"]) -> "tuple[list[NDArray[np.int64]] | None, str | None]":
    """Match the rows of each file to the first by ids, if several files have ids; or say why they do not match."""
    if len({file.path for file in files}) < 2:
        return None, None
    from metacal.evaluation.paired import align_rows

    try:
        return align_rows(files), None
    except InvalidFileError as error:
        return None, f"{error} Rows are not compared one by one."
