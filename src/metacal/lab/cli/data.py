"""``metacal data``: list, fetch and check datasets."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from metacal.cli.terminal import Console, one_line
from metacal.lab.cli import DataDir

if TYPE_CHECKING:
    from metacal.lab.data.files import RemoteFile

app = typer.Typer(help="Datasets: list, fetch, check.", no_args_is_help=True, rich_markup_mode="rich")

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, as `metacal data ls` names them.")]


@app.command("ls")
def show_stock(data_dir: DataDir = None) -> None:
    """List the named datasets, whether they are available, and their location.

    Example: [bold]metacal data ls --data-dir ~/datasets[/]
    """
    from metacal.lab.data.fetch import take_stock
    from metacal.lab.data.files import data_folder

    folder, console = data_folder(data_dir), Console()
    console.say(f"Data folder: {folder}")
    table = Table()
    for column in ("name", "state", "MB", "description", "location, or how to get it"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for source, files, megabytes in take_stock(data_dir):
        if source.built_in:
            state, where = "built in", ""
        elif files:
            state = "[yellow]subset[/]" if any("subset" in path.name for path in files) else "[green]here[/]"
            where = ", ".join(str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in files)
        else:
            state, where = "[dim]not here[/]", source.how_to_get(folder)
        table.add_row(source.name, state, f"{megabytes:,.0f}" if megabytes else "", source.title, escape(where))
    console.print(table)
    console.print("Your own data: use the path of an .npz file, or of a folder of images by class, instead of a name.")


@app.command("fetch")
def fetch(
    names: Names,
    data_dir: DataDir = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Fetch URL/<file name> instead of the canonical source.")
    ] = None,
) -> None:
    """Download datasets from their canonical sources and check their hashes.

    Files with the right hash are kept. Archives are not unpacked.

    Example: [bold]metacal data fetch cifar10 svhn --data-dir ~/datasets[/]
    """
    from metacal.lab.data.fetch import fetch_dataset, remote_files
    from metacal.lab.data.files import data_folder
    from metacal.lab.data.sources import find_source

    folder, console = data_folder(data_dir), Console(stderr=True)
    sources = [find_source(name) for name in names]
    wanted = {source: remote_files(source, folder) for source in sources}  # raises before the first download
    for source, remotes in wanted.items():
        if source.built_in:
            console.say(f"{source.name} is built in: nothing to download.")
            continue
        size = sum(remote.megabytes for remote in remotes)
        console.say(f"{source.name}: to {folder}, {size:,.0f} MB unless already present")
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        with bar as progress:
            bar_of = partial(DownloadBar, progress)
            files = fetch_dataset(source.name, folder=folder, mirror=mirror, progress=bar_of)
        for file in files:
            typer.echo(one_line(str(file)))


@app.command("check")
def check(names: Names, data_dir: DataDir = None) -> None:
    """Compare files with their published hashes and read each dataset once; exit status 2 if one is damaged.

    Example: [bold]metacal data check cifar10[/]
    """
    from metacal.lab.data.fetch import check_dataset
    from metacal.lab.data.sources import find_source

    console = Console()
    for source in [find_source(name) for name in names]:
        for each in check_dataset(source.name, folder=data_dir):
            verdict = "as published" if each.is_good else "no published hash"
            console.say(f"{source.name}: {each.path}: {verdict} ({each.found})")
        console.say(f"{source.name}: read without errors")


class DownloadBar:
    """A progress bar with the interface that pooch expects."""

    total = 0

    def __init__(self, progress: Progress, remote: "RemoteFile") -> None:
        self.progress = progress
        self.task = progress.add_task(Path(remote.name).name, total=remote.megabytes * 1e6)

    def update(self, size: int) -> None:
        """Add downloaded bytes."""
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        """Restart the bar."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """Do nothing: the progress display closes itself."""
