"""``metacal data``: list, fetch and check datasets, and draw what the corruptions do to them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from metacal.cli.options import check_places
from metacal.cli.terminal import Console, one_line
from metacal.errors import InvalidValueError
from metacal.lab.cli import DataDir

if TYPE_CHECKING:
    from metacal.lab.data.fetch import Stock
    from metacal.lab.data.files import RemoteFile

app = typer.Typer(help="Datasets: list, fetch, check, corrupt.", no_args_is_help=True, rich_markup_mode="rich")

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, as `metacal data ls` names them.")]


@app.command("ls")
def show_stock(data_dir: DataDir = None) -> None:
    """List the datasets that have names, whether they are there, and where.

    Example: [bold]metacal data ls --data-dir ~/datasets[/]
    """
    from metacal.lab.data.fetch import take_stock
    from metacal.lab.data.files import data_folder

    console = Console()
    console.say(f"Data folder: {data_folder(data_dir)}")
    table = Table()
    for column in ("name", "state", "MB", "what it is", "where, or how to get it"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for stock in take_stock(data_dir):
        size = f"{stock.megabytes:,.0f}" if stock.megabytes else ""
        table.add_row(
            stock.source.name, _state(stock), size, stock.source.title, escape(_where(stock, data_folder(data_dir)))
        )
    console.print(table)
    console.print("Your own data: the path of an .npz file, or of a folder of images by class, in place of a name.")


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

    sources = [find_source(name) for name in names]
    wanted = {source: remote_files(source, data_folder(data_dir)) for source in sources}  # before the first download
    console = Console(stderr=True)
    for source, remotes in wanted.items():
        if source.built_in:
            console.say(f"{source.name} is built in: nothing to download.")
            continue
        size = sum(remote.megabytes for remote in remotes)
        console.say(f"{source.name}: to {data_folder(data_dir)}, {size:,.0f} MB unless they are there")
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        with bar as progress:
            bar_of = partial(DownloadBar, progress)
            files = fetch_dataset(source.name, folder=data_dir, mirror=mirror, progress=bar_of)
        for file in files:
            typer.echo(one_line(str(file)))


@app.command("check")
def check(names: Names, data_dir: DataDir = None) -> None:
    """Compare files with their published hashes and read every dataset once; exit status 2 if one is damaged.

    Example: [bold]metacal data check cifar10[/]
    """
    from metacal.lab.data.fetch import check_dataset
    from metacal.lab.data.sources import find_source

    console = Console()
    for source in [find_source(name) for name in names]:
        for each in check_dataset(source.name, folder=data_dir):
            said = "as published" if each.is_good else "no published hash to compare with"
            console.say(f"{source.name}: {each.path}: {said} ({each.found})")
        console.say(f"{source.name}: read without an error")


@app.command("corrupt")
def corrupt(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="A dataset of images, by name or path.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The sheet to write, .png or .svg.")],
    only: Annotated[str, typer.Option(metavar="NAMES", help="Only these corruptions, e.g. fog,snow.")] = "",
    data_dir: DataDir = None,
) -> None:
    """Draw a contact sheet: a test image in each row, clean and under a corruption at every severity.

    Example: [bold]metacal data corrupt cifar10 -o sheet.png --only snow,frost,fog[/]
    """
    from metacal.lab.data import load_dataset
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, find_corruption
    from metacal.lab.data.corruptions import corrupt as corrupted
    from metacal.reporting.shift_plots import plot_contact_sheet
    from metacal.reporting.style import house_style, save_figure

    if output.suffix not in (".png", ".svg"):
        raise InvalidValueError(f"`--output` must end in .png or .svg, got {output}.")
    check_places(output=output)
    names = [find_corruption(each.strip()).name for each in only.split(",") if each.strip()] or list(CORRUPTIONS)
    images = load_dataset(name, folder=data_dir).test.inputs
    tiles = []
    for number, each in enumerate(names):
        image = images[number % len(images)].unsqueeze(0)
        shown = [corrupted(image, each, severity, seed=number)[0] for severity in SEVERITIES]
        tiles.append([image[0], *shown])
    columns = ["clean", *map(str, SEVERITIES)]
    with house_style():
        figure = plot_contact_sheet(tiles, [each.replace("_", " ") for each in names], columns)
    save_figure(figure, output)
    Console().say(f"{output}: {len(names)} corruptions at {len(SEVERITIES)} severities")


class DownloadBar:
    """A progress bar with what pooch asks of one: it sets `total`, and calls the methods."""

    total = 0

    def __init__(self, progress: Progress, remote: "RemoteFile") -> None:
        self.progress = progress
        self.task = progress.add_task(Path(remote.name).name, total=remote.megabytes * 1e6)

    def update(self, size: int) -> None:
        """So many more bytes."""
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        """Start again."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """All bytes are there; the progress display closes itself."""


def _state(stock: "Stock") -> str:
    if stock.source.built_in:
        return "built in"
    if not stock.is_here:
        return "[dim]not here[/]"
    return "[yellow]subset[/]" if stock.is_subset else "[green]here[/]"


def _where(stock: "Stock", base: Path) -> str:
    if stock.source.built_in:
        return ""
    if not stock.is_here:
        return stock.source.how_to_get(base)
    return ", ".join(str(path.relative_to(base) if path.is_relative_to(base) else path) for path in stock.files)
