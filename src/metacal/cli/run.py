"""``metacal run``: tables of the paper, from their runs to the page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice

if TYPE_CHECKING:
    from metacal.reporting.paper_table import TableData


def run(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="NAME... [KEY=VALUE...]", help="Tables, and settings for all runs.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table.")] = False,
    rows: Annotated[str, typer.Option(metavar="NAMES", help="Only these rows, e.g. cifar-10/resnet18,svhn.")] = "",
    methods: Annotated[str, typer.Option(metavar="NAMES", help="Only these methods, e.g. ce,ls,mc.")] = "",
    seeds: Annotated[str, typer.Option(metavar="NUMBERS", help="Only these seeds, e.g. 0,1.")] = "",
    preset: Annotated[str, typer.Option(help="full: as published; cpu: minutes a run; smoke: seconds.")] = "full",
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="Folder of all runs.")] = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write each table as .md, .tex, .csv and .json."),
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    jobs: Annotated[int, typer.Option(help="Runs at a time (local).")] = 1,
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs a run (ray).")] = 0.0,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the datasets.")] = None,
) -> None:
    """Run what tables need and is not there yet, and print them beside the published figures.

    Runs are kept in the store and shared between tables; a killed command goes on where it stopped.

    For example:

      metacal run main-ece --preset smoke

      metacal run table-6 --rows cifar-10 --methods ce,mc --seeds 0 --preset cpu --jobs 2

      metacal run cross-domain --preset cpu --rows cifar-10 --methods ce,ls,mc --seeds 0

      metacal run --all --preset smoke -o tables
    """
    from metacal.cli.runs_progress import following
    from metacal.cli.selection import find_tables, narrowed
    from metacal.engines import LocalEngine, RayEngine
    from metacal.experiments import TABLES
    from metacal.reporting.paper_table import prepare_table
    from metacal.reporting.table_formats import write_table
    from metacal.runs.recipes import read_overrides
    from metacal.runs.run_store import RunStore
    from metacal.training import Stopped, StopRequest

    check_choice("--engine", engine, ("local", "ray"))
    names = [word for word in words or [] if "=" not in word]
    overrides = read_overrides([word for word in words or [] if "=" in word])
    if bool(names) == everything:
        raise InvalidValueError("`NAME` must be given, or --all, but not both; `metacal ls` lists the names.")
    tables = [
        narrowed(table, listed(rows), listed(methods), [number(seed) for seed in listed(seeds)])
        for table in (TABLES.values() if everything else (each for name in names for each in find_tables(name)))
    ]
    specs = {spec.hash: spec for table in tables for spec in table.specs(preset, overrides)}
    runs = RunStore(store)
    missing = [spec for spec in specs.values() if runs.state(spec) != "complete"]
    stop = StopRequest()
    try:
        with stop.listening(), following(len(missing)) as emit:
            chosen = RayEngine(address, gpus=gpus) if engine == "ray" else LocalEngine(jobs)
            failed = chosen.execute(missing, runs, data_dir=data_dir, emit=emit, stop=stop)
    except Stopped as stopped:
        Console(stderr=True).print("Stopped; what was done is kept. The same command goes on.", highlight=False)
        raise typer.Exit(128 + stopped.signal) from None
    for table in tables:
        data = prepare_table(table, runs, preset, overrides)
        print_table(data)
        if output is not None:
            write_table(data, output)
    for error in dict.fromkeys(failed.values()):
        Console(stderr=True).print(f"[bold red]failed:[/] {error}", highlight=False, soft_wrap=True)
    raise typer.Exit(1 if failed else 0)


def listed(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def number(text: str) -> int:
    """A seed."""
    if not text.isdecimal():
        raise InvalidValueError(f"`--seeds` must be integers >= 0 with commas between, got {text!r}.")
    return int(text)


def print_table(data: "TableData") -> None:
    """Draw a table: ours, and the published figure under it."""
    from metacal.reporting.paper_table import best_of

    console = Console()
    drawn = Table(
        title=escape(data.title), title_justify="left", caption=f"{data.note} Dim: published.", caption_justify="left"
    )
    drawn.add_column("")
    drawn.add_column("metric", style="dim")
    for column in data.columns:
        drawn.add_column(escape(column), justify="right")
    for line in data.cells:
        best = best_of(line)
        ours = [f"[bold]{cell.text()}[/]" if cell is best else cell.text() for cell in line]
        cells = [f"{text}\n[dim]{cell.published_text()}[/]" for text, cell in zip(ours, line, strict=True)]
        drawn.add_row(line[0].row, line[0].metric.removesuffix("_percent"), *cells)
    if data.ranks is not None:
        drawn.add_row("average rank", "", *(f"{rank:.1f}" for rank in data.ranks))
    console.print(drawn)
    lacking = sum(len(cell.values) < cell.wanted and not cell.is_quoted for line in data.cells for cell in line)
    if lacking:
        console.print(f"{lacking} cells lack seeds (-): metacal run {data.name} fills them.", style="yellow")
