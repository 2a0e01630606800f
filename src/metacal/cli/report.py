"""``metacal report``: prediction files and runs as one page that opens anywhere."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import metacal
from metacal.errors import InvalidValueError

LARGEST = 6_000_000
"""Bytes beyond which a page is slow to open on a phone."""


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN_OR_FILE", help="Prediction files and run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write every figure as PNG and SVG.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write every number behind a figure as JSON.")
    ] = None,
    probs: Annotated[
        str | None, typer.Option(metavar="COLUMNS_OR_KEY", help="Where the probabilities are, e.g. 'p_*'.")
    ] = None,
    logits: Annotated[
        str | None, typer.Option(metavar="COLUMNS_OR_KEY", help="Where the logits are, e.g. 'logit_*'.")
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN_OR_KEY", help="Where the true classes are.")] = None,
    class_names: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the classes, one a line, in the order of the scores.")
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "Calibration report",
    resamples: Annotated[int, typer.Option("--resamples", min=10, help="Bootstrap resamples.")] = 200,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show how calibrated predictions are, what a temperature would mend, and what runs have learned.

    Writes one self-contained HTML file that needs no network. Several files are compared side by side.

    Example: [bold]metacal report predictions.npz --open[/]

    Example: [bold]metacal report before.parquet after.parquet -o both.html --probs 'p_*' --target label[/]

    Example: [bold]metacal report predictions.csv --figures figures --json numbers.json[/]
    """
    from metacal.evaluation import read_predictions
    from metacal.reporting import prepare_report, render_page
    from metacal.reporting.read_run import read_run

    console = Console(stderr=True)
    names = None if class_names is None else read_names(class_names)
    with console.status("Reading") as status:
        subjects = [
            read_run(path)
            if path.is_dir()
            else read_predictions(path, probs=probs, logits=logits, target=target, class_names=names)
            for path in paths
        ]
        prepared = prepare_report(
            subjects, title, resamples, progress=lambda name: status.update(f"Working on {escape(name)}")
        )
        status.update("Writing")
        page = render_page(prepared, metacal.__version__)
        write_text("--output", output, page)
        if json_file is not None:
            numbers = json.dumps(prepared.as_dict(), indent=1, allow_nan=False, ensure_ascii=False)
            write_text("--json", json_file, numbers + "\n")
        drawn = 0
        if figures is not None:
            from metacal.reporting.static_figures import write_figures

            drawn = len(write_figures(prepared, figures))
    size = output.stat().st_size
    typer.echo(f"{output} ({size / 1000:,.0f} kB)")
    if figures is not None:
        typer.echo(f"{figures} ({drawn} figures)")
    if json_file is not None:
        typer.echo(f"{json_file} ({json_file.stat().st_size / 1000:,.0f} kB)")
    if size > LARGEST:
        console.print(f"The page has {size / 1e6:.1f} MB: a report of fewer files opens faster.", style="yellow")
    if show:
        webbrowser.open(output.resolve().as_uri())


def read_names(path: Path) -> list[str]:
    """The names of the classes, one a line; empty lines at the end do not count."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidValueError(f"`--class-names` must name a file that can be read, got {path}: {reason}.") from None


def write_text(option: str, path: Path, text: str) -> None:
    """Write a file, or say which option was wrong."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(
            f"`{option}` must name a file that can be written, got {path}: {error.strerror}."
        ) from None
