"""``metacal evaluate``: how calibrated the predictions in files are, how sure that is, what would mend it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from metacal.cli.options import ClassNames, Logits, Probs, Target, check_places, read_class_names
from metacal.cli.terminal import Console, one_line
from metacal.errors import InvalidValueError
from metacal.files import write_json

if TYPE_CHECKING:
    from metacal.evaluation import Evaluation


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
    ] = 100_000,
    resamples: Annotated[
        int, typer.Option("--resamples", min=10, help="Data sets drawn for the interval of a calibration error.")
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample and of these draws.")] = 0,
    shift: Annotated[
        str | None,
        typer.Option(
            "--shift",
            metavar="NAME",
            help="Evaluate run folders on cifar10-c, cifar100-c, or corruptions of their own test images.",
        ),
    ] = None,
    shift_size: Annotated[
        int | None, typer.Option("--shift-size", min=1, help="With --shift: only so many test images per domain.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="With --shift: also write the heat maps as PNG, SVG."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="With --shift: folder of the datasets.")
    ] = None,
    trust_model: Annotated[
        bool, typer.Option("--trust-model", help="With --shift: run the code of a model that a run's folder names.")
    ] = False,
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

    [bold]metacal evaluate --shift cifar10-c runs/cifar10-resnet18-mc-seed0-1a2b3c4d --json shift.json[/]

    Exit status: 0 good, 1 a figure is beyond its bound, 2 bad input.
    """
    check_places(json=json_file)
    if shift is not None:
        from metacal.lab.cli.shift import shift as measure

        check_shift_options(probs, logits, target, class_names, ood, fail_above, fail_below)
        places = {"data_dir": data_dir, "json_file": json_file, "figures": figures}
        measure(files, shift, size=shift_size, **places, trust_model=trust_model)
        return
    from metacal.cli.evaluation_tables import print_evaluations
    from metacal.evaluation.batches import PredictionFile
    from metacal.evaluation.evaluation import FIGURES, OOD_FIGURES, evaluate_file

    check_no_shift_options(shift_size, figures, data_dir, trust_model or None)
    keys = FIGURES if ood is None else FIGURES + OOD_FIGURES
    bounds = [(*parse_bound(text, "--fail-above", keys), True) for text in fail_above or []]
    bounds += [(*parse_bound(text, "--fail-below", keys), False) for text in fail_below or []]
    names = read_class_names(class_names)
    keywords: dict[str, Any] = {"probs": probs, "logits": logits, "class_names": names}
    opened = [model for path in files for model in PredictionFile.models(path, target=target, **keywords)]
    outside = [] if ood is None else PredictionFile.models(ood, needs_target=False, **keywords)
    if len(outside) > 1 and [file.name for file in outside] != [file.name for file in opened]:
        raise InvalidValueError(f"`--ood` must have one array, or those of the models that are evaluated, got {ood}.")
    evaluations = []
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        for number, file in enumerate(opened):
            shown = one_line(file.name)
            task = progress.add_task(f"reading {shown}", total=None)

            def show(rows: int, task: object = task, name: str = shown) -> None:
                progress.update(task, description=f"{name}: {rows:,} rows")  # type: ignore[arg-type]

            others = outside[number if len(outside) > 1 else 0] if outside else None
            evaluations.append(
                evaluate_file(
                    file, ood=others, num_bins=bins, sample=sample, num_resamples=resamples, seed=seed, on_rows=show
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


def check_shift_options(*for_files: object) -> None:
    """Raise if something was asked for that is about prediction files."""
    if any(option is not None and option != [] for option in for_files):
        raise InvalidValueError(
            "`--shift` must stand alone: it evaluates run folders; options about prediction files say nothing there."
        )


def check_no_shift_options(*for_runs: object) -> None:
    """Raise if something was asked for that is about runs under shift."""
    if any(option is not None for option in for_runs):
        raise InvalidValueError(
            "`--shift-size`, `--figures`, `--data-dir` and `--trust-model` must come with --shift NAME."
        )


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
    value = evaluation.figures[key]
    holds = value <= bound if is_ceiling else value >= bound
    verb = "is" if holds else "FAILS:"
    side = ("at most" if holds else "above") if is_ceiling else ("at least" if holds else "below")
    line = f"{evaluation.path}: {key} {value:.4g} {verb} {side} {bound:g}"
    Console(stderr=not holds).say(line, "green" if holds else "bold red")
    return holds
