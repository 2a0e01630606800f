"""``metacal calibrate``: fit a calibrator on one prediction file and apply it to another."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from metacal.cli import options
from metacal.cli.terminal import Console, one_line, warn
from metacal.errors import InvalidValueError, MetacalWarning
from metacal.files import write_json

if TYPE_CHECKING:
    from torch import Tensor

    from metacal.evaluation import PredictionFile, Predictions
    from metacal.posthoc import Calibrator, Trial

AUTO = "auto"
SHOWN = {"accuracy": 100.0, "nll": 1.0, "brier": 1.0, "ece": 100.0, "classwise_ece": 100.0}
"""Figures of the table before and after, with what people multiply them by."""


def calibrate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Predictions to calibrate; targets are not needed.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write: .parquet, .arrow, .csv, .jsonl or .npz.")],
    method: Annotated[
        str, typer.Option(metavar="NAME", help="temperature, vector, beta, ... (a wrong name lists all), or auto.")
    ] = "temperature",
    fit_on: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Predictions with targets, not those of FILE.")
    ] = None,
    use: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Apply a calibrator that --save wrote; nothing is fitted.")
    ] = None,
    same_classes: Annotated[
        bool, typer.Option("--same-classes", help="With --use: the classes are the calibrator's, whatever their names.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the fitted calibrator (.safetensors).")
    ] = None,
    probs: options.Probs = None,
    logits: options.Logits = None,
    target: options.Target = None,
    class_names: options.ClassNames = None,
    json_file: options.JSONFile = None,
    seed: options.Seed = 0,
) -> None:
    """Fit a calibrator on held-out predictions and write another file with calibrated probabilities.

    They take the place of the scores; all other columns of FILE are kept.

    With --method auto every calibrator is tried by five-fold cross-validation on the fitting file; the simplest one
    within a standard error of the best NLL is fitted on all of it. A table shows figures before and after: of FILE if
    it has targets, of held-out folds if not, of both with auto. Only temperature keeps every predicted class.

    Examples:
    [bold]metacal calibrate test.parquet --fit-on val.parquet --out calibrated.parquet[/]

    [bold]metacal calibrate test.npz --method auto --fit-on val.npz --out new.npz --save calibrator.safetensors[/]

    [bold]metacal calibrate new.csv --use calibrator.safetensors --out calibrated.csv[/]
    """
    from metacal.evaluation.other_columns import other_columns
    from metacal.evaluation.prediction_file import PredictionFile
    from metacal.evaluation.predictions import gather, sample_predictions
    from metacal.evaluation.writing import check_writable, write_predictions
    from metacal.functional.arguments import check_choice
    from metacal.posthoc import CALIBRATORS, Calibrator

    console = Console()
    check_writable(out)
    if out.resolve() == file.resolve():
        raise InvalidValueError(f"`--out` must be another file than the one that is read, got {out}.")
    options.check_places(save=save, json=json_file)
    check_choice("--method", method, (*CALIBRATORS, AUTO))
    if (fit_on is None) == (use is None):
        raise InvalidValueError(
            "Exactly one of `--fit-on` and `--use` must be given: fit a calibrator, or use a saved one."
        )
    names = options.read_class_names(class_names)
    columns: dict[str, Any] = {"probs": probs, "logits": logits, "target": target, "class_names": names}
    opened = PredictionFile(file, **columns, needs_target=False)
    about: dict[str, object] = {"file": str(file), "out": str(out)}
    calibrator: Calibrator | None
    if use is not None:
        calibrator = Calibrator.load(use)
        check_classes(opened, calibrator.num_classes_, None if same_classes else calibrator.class_names_, use)
    else:
        assert fit_on is not None
        fitting = PredictionFile(fit_on, **columns)
        if fitting.class_names != opened.class_names:
            check_classes(opened, fitting.num_classes, None, None)
            raise InvalidValueError(f"`--fit-on` must have the classes of {file} in the same order, got {fit_on}.")
        if fit_on.resolve() == file.resolve():
            warn(f"{file} is what the calibrator is fitted on too: figures of what is written will flatter it.")
        held_out = gather(fitting)
        try:
            calibrator, about["fit"] = fit_calibrator(method, held_out, seed, console)
        except InvalidValueError as error:
            raise InvalidValueError(f"{fit_on}: {error}") from None
        if calibrator is not None and (method == AUTO or not opened.has_targets):
            about["held_out"] = show_held_out(calibrator, held_out, seed, console)
    if calibrator is not None and opened.has_targets:
        before = sample_predictions(opened, seed=seed)
        said = calibrator.predict_proba(**{before.inputs.name: before.scores})
        about["effect"] = show_effect(before, said, f"{file}, {len(before):,} rows", seed, console)
    rows = write_predictions(
        out,
        calibrate_batches(opened, calibrator),
        opened.class_names,
        other_columns(opened),
        opened.describe()["target"],
    )
    console.say(f"Wrote {rows:,} rows to {out}.")
    if save is not None and calibrator is not None:
        calibrator.save(save)
        console.say(f"Saved the calibrator to {save}.")
    if json_file is not None:
        write_json(json_file, about | {"rows": rows})


def fit_calibrator(
    method: str, fitting: "Predictions", seed: int, console: Console
) -> tuple["Calibrator | None", dict[str, object]]:
    """Choose a calibrator if requested, fit it and report the result; None if no calibrator helps."""
    from metacal.posthoc import CALIBRATORS, TemperatureScaling, choose_calibrator

    keywords = {fitting.inputs.name: fitting.scores}
    about: dict[str, object] = {"samples": len(fitting)}
    if method == AUTO:
        method, trials = choose_calibrator(**keywords, targets=fitting.targets, seed=seed)  # type: ignore[arg-type]
        print_trials(trials, method, console)
        about["trials"] = [trial._asdict() for trial in trials]
    about["method"] = method
    if method not in CALIBRATORS:
        console.print("No calibrator does better than none: probabilities are written as they are.")
        return None, about
    calibrator = CALIBRATORS[method]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MetacalWarning)
        calibrator.fit(**keywords, targets=fitting.targets, class_names=fitting.class_names)
    for warning in caught:
        warn(str(warning.message))
    about |= {"fit_report": calibrator.fit_report_._asdict(), "keeps_predictions": calibrator.keeps_predictions}
    found = ""
    if isinstance(calibrator, TemperatureScaling):
        about["temperature"] = calibrator.temperature_
        found = f": T = {calibrator.temperature_:.4g}"
    classes = "stay" if calibrator.keeps_predictions else "may change"
    console.say(f"Fitted {method}{found} on {len(fitting):,} samples; predicted classes {classes}.")
    return calibrator, about


def show_held_out(
    calibrator: "Calibrator", fitting: "Predictions", seed: int, console: Console
) -> dict[str, object] | None:
    """Show cross-validated figures of the fitting file before and after; None if there are too few samples."""
    import torch
    from sklearn.base import clone

    from metacal.posthoc.arrays import read_scores
    from metacal.posthoc.choose import FOLDS, draw_folds, held_out_probs

    if len(fitting) < 2 * FOLDS:
        return None
    logits, probs = (fitting.scores, None) if fitting.is_logits else (None, fitting.scores)
    given, targets = read_scores(logits, probs, fitting.targets)
    assert targets is not None
    said = torch.empty_like(given.scores)
    for part in draw_folds(targets, seed=seed):
        said[part] = held_out_probs(clone(calibrator), given, targets, part)
    title = f"Held-out folds of the fitting file, {len(fitting):,} rows"
    return show_effect(fitting, said, title, seed, console)


def show_effect(before: "Predictions", said: "Tensor", title: str, seed: int, console: Console) -> dict[str, object]:
    """Print figures before and after with 95 % intervals and paired changes; return the same for JSON."""
    from dataclasses import replace

    from metacal.evaluation.comparison import LABELS, Comparison
    from metacal.evaluation.evaluation import evaluate_predictions

    pair = (replace(before, name="before"), replace(before, scores=said, is_logits=False, name="after"))
    evaluations = [evaluate_predictions(each, seed=seed) for each in pair]
    comparison = Comparison.of(evaluations, seed=seed)
    by_figure = {each.figure: each for each in comparison.differences}
    table = Table(title=escape(one_line(title)), title_justify="left")
    for heading in ("", "before", "after", "change"):
        table.add_column(heading, justify="left" if not heading else "right")

    def cell(factor: float, *ends: float) -> str:
        value, low, high = (f"{factor * end:.{2 if factor > 1.0 else 4}f}" for end in ends)
        return f"{value} ({low} to {high})"

    for name, factor in SHOWN.items():
        keys = (name, f"{name}_low", f"{name}_high")
        cells = [cell(factor, *(each.figures.get(key, math.nan) for key in keys)) for each in evaluations]
        found = by_figure.get(name)
        cells.append("" if found is None else cell(factor, found.value, found.low, found.high))
        is_noise = found is not None and not found.is_beyond_noise
        table.add_row(LABELS[name] + (" %" if factor > 1.0 else ""), *cells, style="dim" if is_noise else None)
    console.print(table)
    worse = by_figure.get("accuracy")
    if worse is not None and worse.is_worse:
        warn(f"accuracy falls by {-100.0 * worse.value:.2f} points; --method temperature keeps every predicted class.")
    return {
        "rows": len(before),
        "before": {name: evaluations[0].figures[name] for name in SHOWN},
        "after": {name: evaluations[1].figures[name] for name in SHOWN},
        "differences": [each.to_dict() for each in comparison.differences if each.figure in SHOWN],
    }


def calibrate_batches(
    file: "PredictionFile", calibrator: "Calibrator | None"
) -> "Iterator[tuple[Tensor, Tensor | None]]":
    """Yield batches of calibrated probabilities, with targets if there are any."""
    for batch in file.batches():
        scores = batch.scores.contiguous()
        if calibrator is not None:
            scores = calibrator.predict_proba(**{"logits" if file.is_logits else "probs": scores})
        elif file.is_logits:
            scores = scores.softmax(dim=1)
        yield scores, batch.targets


def check_classes(file: "PredictionFile", count: int, names: tuple[str, ...] | None, use: Path | None) -> None:
    """Raise unless the file has the calibrator's classes: the same number and, if known, the same names.

    Numbers are names like any others: what they stand for is not known.
    """
    if count != file.num_classes:
        problem = f"has {file.num_classes} classes, but the calibrator is for {count}; use one that fits."
        raise InvalidValueError(f"{file.path}: {problem}")
    for place, (fitted, found) in enumerate(zip(names or (), file.class_names, strict=False)):
        if fitted != found:
            raise InvalidValueError(
                f"`--use` must name a calibrator of the classes of {file.path} in the same order, got {use}, whose "
                f"class {place} is {fitted}, not {found}; name the classes of the file with `--class-names`, or pass "
                "`--same-classes` if they are the same in this order."
            )


def print_trials(trials: list["Trial"], chosen: str, console: Console) -> None:
    """Print the table of cross-validated candidates."""
    table = Table(title="NLL by five-fold cross-validation on the fitting file", title_justify="left")
    for heading in ("method", "NLL", "behind the best", "accuracy %", "predicted classes", ""):
        table.add_column(heading, justify="left" if heading in ("method", "predicted classes", "") else "right")
    for trial in trials:
        figures = ["-", "-", "-"]
        if trial.nll is not None and trial.accuracy is not None:
            behind = "-" if trial.behind is None else f"{trial.behind:.5f} ± {trial.behind_error:.5f}"
            figures = [f"{trial.nll:.5f}", behind, f"{100.0 * trial.accuracy:.2f}"]
        classes = "stay" if trial.keeps_predictions else "may change"
        note = "; ".join(filter(None, ("chosen" if trial.name == chosen else "", trial.note)))
        table.add_row(trial.name, *figures, classes, escape(note))
    console.print(table)
    rule = "Chosen: the simplest (in this order) that is no more than one standard error (±) behind the best."
    console.say(rule, "dim")
