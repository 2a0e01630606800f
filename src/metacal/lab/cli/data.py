"""``metacal data``: what datasets are there, getting them, checking them, looking at them corrupted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from metacal.cli.options import check_places
from metacal.cli.terminal import Console, one_line
from metacal.errors import needs
from metacal.files import write_json
from metacal.lab.cli import corrupt

if TYPE_CHECKING:
    from metacal.lab.data.fetch import Stock
    from metacal.lab.data.files import HashCheck, RemoteFile

app = typer.Typer(
    help="Datasets: what is there, getting them, checking them.", no_args_is_help=True, rich_markup_mode="rich"
)
app.command("corrupt")(corrupt.corrupt)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, as `metacal data ls` names them.")]
Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="FOLDER", help="Data folder; else METACAL_DATA, else the user's cache folder."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write this as JSON.")]


@app.command("ls")
@needs("lab")
def show_stock(data_dir: Folder = None, json_file: JsonFile = None) -> None:
    """List the datasets that have names, whether they are there, and where.

    Example: [bold]metacal data ls --data-dir ~/datasets[/]
    """
    from metacal.lab.data.fetch import take_stock
    from metacal.lab.data.files import data_folder

    check_places(json=json_file)
    stocks = take_stock(data_dir)
    console = Console()
    console.say(f"Data folder: {data_folder(data_dir)}")
    table = Table()
    for column in ("name", "state", "MB", "what it is", "where, or how to get it"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for stock in stocks:
        size = f"{stock.megabytes:,.0f}" if stock.megabytes else ""
        table.add_row(stock.source.name, _state(stock), size, stock.source.title, escape(_where(stock, data_dir)))
    console.print(table)
    console.print("Your own data: the path of an .npz file, or of a folder of images by class, in place of a name.")
    if json_file is not None:
        write_json(json_file, {stock.source.name: _as_dict(stock) for stock in stocks})


@app.command("fetch")
@needs("lab")
def fetch(
    names: Names,
    data_dir: Folder = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Fetch URL/<file name> instead of the canonical source.")
    ] = None,
) -> None:
    """Download datasets from their canonical sources and check their hashes.

    Files that are there with the right hash are left alone. Nothing is unpacked: archives are read as they are.

    Example: [bold]metacal data fetch cifar10 svhn --data-dir ~/datasets[/]
    """
    from metacal.lab.data.fetch import fetch_dataset, remote_files
    from metacal.lab.data.files import data_folder
    from metacal.lab.data.sources import find_source

    sources = [find_source(name) for name in names]
    wanted = {source: remote_files(source, data_folder(data_dir)) for source in sources}  # before the first download
    console = Console(stderr=True)
    for source, remotes in wanted.items():
        if source.built_in:
            console.say(f"{source.name} is built in: nothing to download.")
            continue
        size = sum(remote.megabytes for remote in remotes)
        line = f"{source.name}: to {data_folder(data_dir)}, {size:,.0f} MB unless they are there"
        console.say(line)
        with _progress(console) as progress:
            files = fetch_dataset(
                source.name, folder=data_dir, mirror=mirror, progress=lambda remote: RichBar(progress, remote)
            )
        for file in files:
            typer.echo(one_line(str(file)))


@app.command("check")
@needs("lab")
def check(names: Names, data_dir: Folder = None, json_file: JsonFile = None) -> None:
    """Compare files with their published hashes and read every dataset once; exit status 2 if one is damaged.

    Example: [bold]metacal data check cifar10[/]
    """
    from metacal.lab.data.fetch import check_dataset
    from metacal.lab.data.sources import find_source

    check_places(json=json_file)
    sources = [find_source(name) for name in names]
    console = Console()
    found: dict[str, Any] = {}
    for source in sources:
        checks = check_dataset(source.name, folder=data_dir)
        found[source.name] = [_check_dict(each) for each in checks]
        for each in checks:
            said = "as published" if each.is_good else "no published hash to compare with"
            line = f"{source.name}: {each.path}: {said} ({each.found})"
            console.say(line)
        console.say(f"{source.name}: read without an error")
    if json_file is not None:
        write_json(json_file, found)


class RichBar:
    """A progress bar with the methods that pooch calls."""

    def __init__(self, progress: Progress, remote: "RemoteFile") -> None:
        self.progress = progress
        self.task = progress.add_task(Path(remote.name).name, total=remote.megabytes * 1e6)
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes of the file, as the server says; 0 if it does not."""
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        if value:
            self.progress.update(self.task, total=value)

    def update(self, size: int) -> None:
        """So many more bytes."""
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        """Start again."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """All bytes are there; the progress display closes itself."""


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


def _state(stock: "Stock") -> str:
    if stock.source.built_in:
        return "built in"
    if not stock.is_here:
        return "[dim]not here[/]"
    return "[yellow]subset[/]" if stock.is_subset else "[green]here[/]"


def _where(stock: "Stock", data_dir: Path | None) -> str:
    from metacal.lab.data.files import data_folder

    if stock.source.built_in:
        return ""
    if stock.is_here:
        base = data_folder(data_dir)
        inside = (path.relative_to(base) if path.is_relative_to(base) else path for path in stock.files)
        return ", ".join(map(str, inside))
    return stock.source.how_to_get(data_folder(data_dir))


def _as_dict(stock: "Stock") -> dict[str, Any]:
    return {
        "title": stock.source.title,
        "built_in": stock.source.built_in,
        "here": stock.is_here,
        "subset": stock.is_subset,
        "files": [str(path) for path in stock.files],
        "megabytes": round(stock.megabytes, 3),
    }


def _check_dict(check: "HashCheck") -> dict[str, Any]:
    return {
        "file": str(check.path),
        "expected": check.expected,
        "found": check.found,
        "good": check.is_good,
    }
