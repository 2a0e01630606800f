"""``metacal evaluate``: how calibrated the predictions in files are, how sure that is, what would mend it."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from metacal.cli.evaluation_tables import print_evaluations
from metacal.cli.json_file import write_json
from metacal.cli.places import check_places
from metacal.cli.prediction_options import ClassNames, Logits, Probs, Target, read_class_names
from metacal.errors import InvalidValueError
from metacal.evaluation.batches import PredictionFile
from metacal.evaluation.evaluation import FIGURES, OOD_FIGURES, Evaluation, evaluate_file
from metacal.evaluation.intervals import RESAMPLES
from metacal.evaluation.reservoir import SAMPLE


def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="CSV, Parquet, Arrow, Feather, NPZ, NPY or JSON lines.", show_default=False
        ),
    ],
    probs: Probs = None,
    logits: Logits = None,
    target: Target = None,
    class_names: ClassNames = None,
    ood: Annotated[
        Path | None,
        typer.Option(
            "--ood",
            metavar="FILE",
            help="Predictions for samples from elsewhere: adds AUROC and FPR95 of telling them.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option("--fail-above", metavar="KEY=VALUE", help="Exit with 1 if a figure is higher, e.g. ece=0.05."),
    ] = None,
    fail_below: Annotated[
        list[str] | None,
        typer.Option("--fail-below", metavar="KEY=VALUE", help="Exit with 1 if a figure is lower, e.g. accuracy=0.9."),
    ] = None,
    bins: Annotated[int, typer.Option("--bins", min=1, help="Bins of the calibration errors.")] = 15,
    sample: Annotated[
        int, typer.Option("--sample", min=100, help="Rows kept for figures that need rows; more rows are sampled.")
    ] = SAMPLE,
    resamples: Annotated[int, typer.Option("--resamples", min=10, help="Bootstrap resamples.")] = RESAMPLES,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample and of the bootstrap.")] = 0,
) -> None:
    """Say how calibrated the predictions in a file are, how sure that is, and what would mend it.

    Columns are found by name: prob_*, p_* or logit_* for the scores (or one column probs or logits that holds
    lists; one column p is a binary model's), and target, label, y or ground_truth. Or name them. What the scores are
    is never guessed from their values. Several files are shown side by side.

    Examples:
    [bold]metacal evaluate test.parquet[/]

    [bold]metacal evaluate test.csv --probs 'score_*' --target truth --json scores.json[/]

    [bold]metacal evaluate old.npz new.npz --fail-above ece=0.05[/]

    [bold]metacal evaluate test.parquet --ood other.parquet[/]

    Exit status: 0 good, 1 a figure is beyond its bound, 2 bad input.
    """
    keys = FIGURES if ood is None else FIGURES + OOD_FIGURES
    bounds = [(*parse_bound(text, "--fail-above", keys), True) for text in fail_above or []]
    bounds += [(*parse_bound(text, "--fail-below", keys), False) for text in fail_below or []]
    check_places(json=json_file)
    names = read_class_names(class_names)
    opened = [PredictionFile(path, probs=probs, logits=logits, target=target, class_names=names) for path in files]
    outside = None
    if ood is not None:
        outside = PredictionFile(ood, probs=probs, logits=logits, target=None, class_names=names, needs_target=False)
    evaluations = []
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        for file in opened:
            task = progress.add_task(f"reading {file.path.name}", total=None)

            def show(rows: int, task: object = task, name: str = file.path.name) -> None:
                progress.update(task, description=f"{name}: {rows:,} rows")  # type: ignore[arg-type]

            evaluations.append(
                evaluate_file(
                    file, ood=outside, num_bins=bins, sample=sample, num_resamples=resamples, seed=seed, on_rows=show
                )
            )
            progress.remove_task(task)
    print_evaluations(evaluations, Console())
    if json_file is not None:
        found = [evaluation.as_dict() for evaluation in evaluations]
        write_json(json_file, found[0] if len(found) == 1 else {"files": found})
    kept = [check_bound(evaluation, *bound) for evaluation in evaluations for bound in bounds]  # says so of each
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


def check_bound(evaluation: Evaluation, key: str, bound: float, is_ceiling: bool) -> bool:
    """Say whether a figure keeps its bound; an infinite or undefined figure does not."""
    value = evaluation.figures[key]
    holds = value <= bound if is_ceiling else value >= bound
    verb = "is" if holds else "FAILS:"
    side = ("at most" if holds else "above") if is_ceiling else ("at least" if holds else "below")
    line = f"{evaluation.path}: {key} {value:.4g} {verb} {side} {bound:g}"
    Console(stderr=not holds).print(
        line, style="green" if holds else "bold red", highlight=False, markup=False, soft_wrap=True
    )
    return holds
