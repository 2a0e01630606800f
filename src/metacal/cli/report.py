"""``metacal report``: prediction files and runs as one page that opens anywhere."""

import hashlib
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import metacal
from metacal.cli import options
from metacal.cli.terminal import Console, one_line
from metacal.errors import missing_extra, missing_package
from metacal.files import write_json, write_text

if TYPE_CHECKING:
    from metacal.evaluation import Predictions
    from metacal.reporting import RunView

FOLDER_READERS: "list[Callable[[Path], RunView]]" = []
"""What opens a folder; the lab adds its own, so that the library does not import it."""

PAGE = Path("report.html")
TITLE = "Calibration report"
LARGEST = 6_000_000
"""Bytes beyond which a page is slow to open on a phone."""


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN_OR_FILE", help="Prediction files, and folders of complete runs.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = PAGE,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write every figure as PNG and SVG.")] = None,
    json_file: options.JSONFile = None,
    probs: options.Probs = None,
    logits: options.Logits = None,
    target: options.Target = None,
    class_names: options.ClassNames = None,
    percent: options.Percent = False,
    file_format: options.Format = "auto",
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also show groups of samples, by the values of a column.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Heading of the page.")] = None,
    resamples: options.Resamples = 1000,
    sample: options.Sample = 100_000,
    seed: options.Seed = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show how calibrated predictions are, what a temperature would fix, and what runs have learned.

    Writes one self-contained HTML file that needs no network. Several files are compared side by side. Of a file with
    more than 100,000 rows a random sample of so many is shown, and the page says so (--sample).

    Example: [bold]metacal report predictions.npz --open[/]

    Example: [bold]metacal report before.parquet after.parquet -o both.html --probs 'p_*' --target label[/]

    Example: [bold]metacal report predictions.csv --by country --figures figures --json numbers.json[/]

    Tables and figures of the paper have a page of their own: [bold]metacal show main-ece -o DIR[/]
    """
    from metacal.cli.evaluate import align
    from metacal.cli.summaries import describe_read
    from metacal.evaluation import PredictionFile, sample_predictions
    from metacal.reporting import prepare_report, render_page
    from metacal.reporting.report import Origin, Source

    console = Console(stderr=True)
    options.check_places(output=output, json=json_file)
    names = options.read_class_names(class_names)
    with console.status("Reading") as status:
        keywords: dict[str, Any] = {"probs": probs, "logits": logits, "target": target, "class_names": names}
        keywords |= {"percent": percent, "file_format": file_format, "by": by}
        opened: list[RunView | PredictionFile] = []
        for path in paths:
            is_run = path.is_dir()
            opened += [read_folder(path)] if is_run else PredictionFile.models(path, **keywords)
        files = [each for each in opened if isinstance(each, PredictionFile)]
        places, problem = align(files)
        order: Iterator[Any] = iter([None] * len(files) if places is None else places)
        subjects: list[Predictions | RunView] = [
            sample_predictions(each, sample, seed, places=next(order)) if isinstance(each, PredictionFile) else each
            for each in opened
        ]
        hashes = {path: file_hash(path) for path in dict.fromkeys(file.path for file in files)}
        sources = tuple(Source(str(file.path), hashes[file.path], describe_read(file.describe())) for file in files)
        prepared = prepare_report(
            subjects,
            TITLE if title is None else title,
            resamples,
            progress=lambda name: status.update(f"Working on {escape(name)}"),
            problem=problem,
        )
        today = datetime.now(timezone.utc).date().isoformat()
        command = shlex.join(("metacal", *sys.argv[1:]))
        prepared = replace(prepared, origin=Origin(today, command, sources))
        status.update("Writing")
        page = render_page(prepared, metacal.__version__)
        write_text(output, page)
        if json_file is not None:
            write_json(json_file, prepared.as_dict())
        drawn = 0
        if figures is not None:
            from metacal.reporting.static_figures import write_figures

            drawn = len(write_figures(prepared, figures))
    size = output.stat().st_size
    typer.echo(one_line(f"{output} ({size / 1000:,.0f} kB)"))
    if figures is not None:
        typer.echo(one_line(f"{figures} ({drawn} files)"))
    if json_file is not None:
        typer.echo(one_line(f"{json_file} ({json_file.stat().st_size / 1000:,.0f} kB)"))
    if size > LARGEST:
        console.print(f"The page has {size / 1e6:.1f} MB: a report of fewer files opens faster.", style="yellow")
    if show:
        webbrowser.open(output.resolve().as_uri())


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def read_folder(path: Path) -> "RunView":
    """The run in a folder, read by the lab."""
    if not FOLDER_READERS:
        raise missing_extra("lab", missing_package("lab") or "metacal.lab")
    return FOLDER_READERS[0](path)
