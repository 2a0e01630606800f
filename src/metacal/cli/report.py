"""``metacal report``: prediction files and runs as one self-contained page."""

import hashlib
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from mmap import ACCESS_READ, mmap
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
    drop_unlabelled: options.DropUnlabelled = False,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also show groups of samples, by the values of a column.")
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "Calibration report",
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
    columns: dict[str, Any] = {"probs": probs, "logits": logits, "target": target, "by": by}
    columns |= {"percent": percent, "file_format": file_format, "class_names": options.read_class_names(class_names)}
    columns["drop_unlabelled"] = drop_unlabelled
    with console.status("Reading") as status:
        opened: list[RunView | PredictionFile] = []
        for path in paths:
            opened += [read_folder(path)] if path.is_dir() else PredictionFile.models(path, **columns)
        files = [each for each in opened if isinstance(each, PredictionFile)]
        places, problem = align(files)
        order: Iterator[Any] = iter([None] * len(files) if places is None else places)
        subjects: list[Predictions | RunView] = [
            sample_predictions(each, sample, seed, places=next(order)) if isinstance(each, PredictionFile) else each
            for each in opened
        ]

        def progress(name: str) -> None:
            status.update(f"Working on {escape(name)}")

        prepared = prepare_report(subjects, title, resamples, progress, problem)
        hashes = {path: file_hash(path) for path in {file.path for file in files}}
        sources = tuple(Source(str(file.path), hashes[file.path], describe_read(file.describe())) for file in files)
        today, command = datetime.now(timezone.utc).date().isoformat(), shlex.join(("metacal", *sys.argv[1:]))
        prepared = replace(prepared, origin=Origin(today, command, sources))
        status.update("Writing")
        write_text(output, render_page(prepared, metacal.__version__))
        size = output.stat().st_size
        written = [f"{output} ({size / 1000:,.0f} kB)"]
        if figures is not None:
            from metacal.reporting.static_figures import write_figures

            written.append(f"{figures} ({len(write_figures(prepared, figures))} files)")
        if json_file is not None:
            write_json(json_file, prepared.as_dict())
            written.append(f"{json_file} ({json_file.stat().st_size / 1000:,.0f} kB)")
    for line in written:
        typer.echo(one_line(line))
    if size > LARGEST:
        console.print(f"The page has {size / 1e6:.1f} MB: a report of fewer files opens faster.", style="yellow")
    if show:
        webbrowser.open(output.resolve().as_uri())


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        return hashlib.sha256(mapped).hexdigest()


def read_folder(path: Path) -> "RunView":
    """Read the run in a folder with the lab."""
    if not FOLDER_READERS:
        raise missing_extra("lab", missing_package("lab") or "metacal.lab")
    return FOLDER_READERS[0](path)
