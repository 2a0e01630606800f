"""``metacal calibrate``: fit a calibrator on one file of predictions and apply it to another."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from metacal.cli import options
from metacal.cli.terminal import Console, warn
from metacal.errors import InvalidValueError, MetacalWarning
from metacal.files import write_json

if TYPE_CHECKING:
    from torch import Tensor

    from metacal.evaluation import PredictionFile, Predictions
    from metacal.posthoc import Calibrator, Trial

AUTO = "auto"


def calibrate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Predictions to calibrate; targets are not needed.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write: .parquet, .arrow, .csv or .npz.")],
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
    """Fit a calibrator on held-out predictions and write the calibrated probabilities of another file.

    With --method auto every calibrator is tried by five-fold cross-validation on the fitting file; the one with the
    least NLL is fitted on all of it. Only temperature leaves every predicted class as it is.

    Examples:
    [bold]metacal calibrate test.parquet --fit-on val.parquet --out calibrated.parquet[/]

    [bold]metacal calibrate test.npz --method auto --fit-on val.npz --out new.npz --save calibrator.safetensors[/]

    [bold]metacal calibrate new.csv --use calibrator.safetensors --out calibrated.csv[/]
    """
    from metacal.evaluation.prediction_file import PredictionFile
    from metacal.evaluation.predictions import gather
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
    keywords = {"probs": probs, "logits": logits, "target": target, "class_names": names}
    opened = PredictionFile(file, **keywords, needs_target=False)  # type: ignore[arg-type]
    about: dict[str, object] = {"file": str(file), "out": str(out)}
    calibrator: Calibrator | None
    if use is not None:
        calibrator = Calibrator.load(use)
        check_classes(calibrator.num_classes_, opened.num_classes, file)
        if not same_classes:
            check_names(calibrator.class_names_, opened.class_names, file, use)
    else:
        assert fit_on is not None
        fitting = PredictionFile(fit_on, **keywords)  # type: ignore[arg-type]
        if fitting.class_names != opened.class_names:
            check_classes(fitting.num_classes, opened.num_classes, file)
            raise InvalidValueError(f"`--fit-on` must have the classes of {file} in the same order, got {fit_on}.")
        if fit_on.resolve() == file.resolve():
            warn(f"{file} is what the calibrator is fitted on too: figures of what is written will flatter it.")
        held_out = gather(fitting)
        try:
            calibrator, about["fit"] = fit_calibrator(method, held_out, seed, console)
        except InvalidValueError as error:
            raise InvalidValueError(f"{fit_on}: {error}") from None
    rows = write_predictions(out, calibrate_batches(opened, calibrator), opened.class_names)
    console.say(f"Wrote {rows:,} rows to {out}.")
    if save is not None and calibrator is not None:
        calibrator.save(save)
        console.say(f"Saved the calibrator to {save}.")
    if json_file is not None:
        write_json(json_file, about | {"rows": rows})


def fit_calibrator(
    method: str, fitting: "Predictions", seed: int, console: Console
) -> tuple["Calibrator | None", dict[str, object]]:
    """Choose if asked to, fit, and say what was found; None means that the scores are best left as they are."""
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


def calibrate_batches(
    file: "PredictionFile", calibrator: "Calibrator | None"
) -> "Iterator[tuple[Tensor, Tensor | None]]":
    """Batches of calibrated probabilities with their targets, if there are any."""
    for batch in file.batches():
        scores = batch.scores.contiguous()
        if calibrator is not None:
            scores = calibrator.predict_proba(**{"logits" if file.is_logits else "probs": scores})
        elif file.is_logits:
            scores = scores.softmax(dim=1)
        yield scores, batch.targets


def check_classes(fitted: int, found: int, file: Path) -> None:
    """Raise unless a calibrator of so many classes fits the file."""
    if fitted != found:
        raise InvalidValueError(f"{file}: has {found} classes, but the calibrator is for {fitted}; use one that fits.")


def check_names(fitted: tuple[str, ...] | None, found: tuple[str, ...], file: Path, use: Path) -> None:
    """Raise unless the classes of a saved calibrator, if it knows them, are those of the file in the same order.

    Numbers are names like any others: what they stand for is not known.
    """
    if fitted is None or fitted == found:
        return
    place = next(place for place, (one, other) in enumerate(zip(fitted, found, strict=True)) if one != other)
    raise InvalidValueError(
        f"`--use` must name a calibrator of the classes of {file} in the same order, got {use}, whose class {place} is "
        f"{fitted[place]}, not {found[place]}; name the classes of the file with `--class-names`, or pass "
        "`--same-classes` if they are the same in this order."
    )


def print_trials(trials: list["Trial"], chosen: str, console: Console) -> None:
    """Draw the table that the choice was made by."""
    table = Table(title="NLL by five-fold cross-validation on the fitting file", title_justify="left")
    for heading in ("method", "NLL", "predicted classes", ""):
        table.add_column(heading, justify="right" if heading == "NLL" else "left")
    for trial in trials:
        nll = "-" if trial.nll is None else f"{trial.nll:.5f}"
        note = "chosen" if trial.name == chosen else trial.note
        table.add_row(trial.name, nll, "stay" if trial.keeps_predictions else "may change", escape(note))
    console.print(table)
