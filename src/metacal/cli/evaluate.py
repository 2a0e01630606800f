"""``metacal evaluate``: how calibrated the predictions in files are, how certain that is, what would fix it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from metacal.cli import options
from metacal.cli.summaries import print_differences, print_evaluations, to_junit, to_markdown
from metacal.cli.terminal import Console, one_line
from metacal.errors import InvalidFileError, InvalidValueError
from metacal.files import json_text, write_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from metacal.evaluation import Comparison
    from metacal.evaluation.gates import Check
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
    from metacal.evaluation.comparison import Comparison
    from metacal.evaluation.evaluation import (
        BINARY_FIGURES,
        FIGURES,
        GROUP_FIGURES,
        MEASURES,
        OOD_FIGURES,
        evaluate_file,
    )
    from metacal.evaluation.gates import Bound, check_difference, read_baseline, unpaired_difference
    from metacal.evaluation.prediction_file import PredictionFile

    written = {"json": json_file, "markdown": markdown, "junit": junit}
    options.check_places(**written)
    if [str(path) for path in written.values()].count(STANDARD_OUTPUT) > 1:
        raise InvalidValueError("Only one of `--json`, `--markdown` and `--junit` can be `-`; name a file.")
    keys = FIGURES + BINARY_FIGURES + (() if ood is None else OOD_FIGURES) + (() if by is None else GROUP_FIGURES)
    bounds = [Bound.parse(text, keys, is_ceiling=True) for text in fail_above or []]
    bounds += [Bound.parse(text, keys, is_ceiling=False) for text in fail_below or []]
    gates = fail_if_worse or []
    if (baseline is None) != (not gates):
        raise InvalidValueError("`--baseline FILE` and `--fail-if-worse KEY` must be given together, got one of them.")
    if any(gate not in MEASURES for gate in gates):
        raise InvalidValueError(f"`--fail-if-worse` must name one of {', '.join(MEASURES)}, got {', '.join(gates)}.")
    if junit is not None and not bounds and not gates:
        raise InvalidValueError("`--junit` must have a gate to report; add --fail-above, --fail-below or --baseline.")
    old = None if baseline is None else read_baseline(baseline, gates)
    is_paired = baseline is not None and old is None
    if baseline is not None and is_paired:
        files = [baseline, *files]
    keywords: dict[str, Any] = {"probs": probs, "logits": logits, "class_names": options.read_class_names(class_names)}
    keywords |= {"percent": percent, "top_label": True, "file_format": file_format}
    judged_by: dict[str, Any] = {"target": target, "by": by, "multilabel": multilabel, "ignore": ignore}
    opened = [model for path in files for model in PredictionFile.models(path, **judged_by, **keywords)]
    outside = [] if ood is None else PredictionFile.models(ood, needs_target=False, **keywords)
    if len(outside) > 1 and [file.name for file in outside] != [file.name for file in opened]:
        raise InvalidValueError(f"`--ood` must have one array, or those of the models that are evaluated, got {ood}.")
    places, problem = align(opened)
    evaluations = []
    with reading() as show:
        for number, file in enumerate(opened):
            evaluations.append(
                evaluate_file(
                    file,
                    ood=outside[number if len(outside) > 1 else 0] if outside else None,
                    num_bins=bins,
                    sample=sample,
                    num_resamples=resamples,
                    seed=seed,
                    places=None if places is None else places[number],
                    on_rows=show(file.name),
                )
            )
    comparison = Comparison(evaluations, problem=problem)
    if len(evaluations) > 1 and problem is None:
        comparison = Comparison.of(evaluations, resamples, seed)
    if is_paired and comparison.problem is not None:
        raise InvalidValueError(f"`--baseline` must hold the same rows, got {baseline}: {comparison.problem}")
    judged = evaluations[1:] if is_paired else evaluations
    checks = [bound.check(evaluation) for evaluation in judged for bound in bounds]
    differences = [] if baseline is None else comparison.differences
    if baseline is not None and old is not None:
        differences = [unpaired_difference(gate, old, new, baseline.stem) for new in evaluations for gate in gates]
    checks += [check_difference(difference) for difference in differences if difference.figure in gates]
    console = Console(stderr=any(str(path) == STANDARD_OUTPUT for path in written.values()))
    print_evaluations(evaluations, console)
    print_differences(comparison, console)
    for check in checks:
        (console if check.holds else Console(stderr=True)).say(check.line, "green" if check.holds else "bold red")
    whole = evaluations[0].to_dict() if len(evaluations) == 1 else comparison.to_dict()
    write_outputs(written, whole, comparison, checks)
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


def align(files: Sequence["PredictionFile"]) -> "tuple[list[NDArray[np.int64]] | None, str | None]":
    """Where the rows of each file stand in the first, if several files have ids; and why they do not match."""
    if len({file.path for file in files}) < 2:
        return None, None
    from metacal.evaluation.alignment import align_rows

    try:
        return align_rows(files), None
    except InvalidFileError as error:
        return None, f"{error} Rows are not compared one by one."


@contextmanager
def reading() -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show on the terminal how many rows of a file have been read."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)

        def show(name: str) -> Callable[[int], None]:
            return lambda rows: progress.update(task, description=f"{one_line(name)}: {rows:,} rows")

        yield show


def write_outputs(
    written: Mapping[str, Path | None], whole: Mapping[str, Any], comparison: "Comparison", checks: Sequence["Check"]
) -> None:
    """Write what was asked for, by the name of its option, to a file or to standard output."""
    for kind, path in written.items():
        if path is None:
            continue
        if kind == "json":
            text = json_text(whole)
        else:
            text = to_markdown(comparison, checks) if kind == "markdown" else to_junit(checks)
        if str(path) == STANDARD_OUTPUT:
            sys.stdout.write(text)
        else:
            write_text(path, text)
