"""``metacal shift``: evaluate runs under corruptions, and print heat maps."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from metacal.cli.options import JSONFile, check_places
from metacal.cli.terminal import Console
from metacal.files import write_json
from metacal.lab.cli import DataDir, TrustModel

if TYPE_CHECKING:
    from metacal.reporting.shift import Shift

COOL = ("", "on grey11", "on grey15", "on grey19", "on dark_blue", "on navy_blue", "on blue3")
HEAT = (*COOL, "on orange4", "bold white on dark_red")


def shift(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of complete runs.", show_default=False)],
    size: Annotated[int | None, typer.Option(min=1, help="Use at most this many test images per domain.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the heat maps as PNG and SVG.")
    ] = None,
    data_dir: DataDir = None,
    json_file: JSONFile = None,
    trust_model: TrustModel = False,
) -> None:
    """Evaluate finished runs on 19 corruptions at 5 severities, also with a temperature fitted on clean data.

    The figures are stored in RUN/shift, for [bold]metacal report RUN[/].

    Example: [bold]metacal shift runs/cifar10-resnet18-mc-seed0-1a2b3c4d --json shift.json[/]

    Example: [bold]metacal shift runs/* --size 1000 --figures figures[/]
    """
    from metacal.lab.cli.progress import watch
    from metacal.lab.shift import check_run, measure_shift
    from metacal.lab.training import RunFolder
    from metacal.lab.training.environment import provenance
    from metacal.reporting.shift import prepare_shift

    check_places(json=json_file)
    started = time.perf_counter()
    folders = [RunFolder(path) for path in runs]
    for folder in folders:
        check_run(folder, trust_model=trust_model)  # all before the first is evaluated
    measured: list[dict[str, Any]] = []
    for folder in folders:
        with watch(folder.path.name) as (_, bar):
            study = measure_shift(folder, data_dir=data_dir, size=size, progress=bar, trust_model=trust_model)
        measured.append(study)
        prepared = prepare_shift(study)
        print_shift(folder.path, prepared, Console())
        if figures is not None:
            write_heat_maps(prepared, figures / f"{folder.path.name}-{study['shift']}")
    if json_file is not None:
        about = provenance(shlex.join(["metacal", *sys.argv[1:]]))
        about["seeds"] = sorted({folder.read_spec().seed for folder in folders})
        about["wall_seconds"] = round(time.perf_counter() - started, 1)
        write_json(json_file, {"about": about, **(measured[0] if len(measured) == 1 else {"runs": measured})})


def print_shift(path: Path, shift: "Shift", console: Console) -> None:
    """Print the heat maps and a summary."""
    console.say(f"{path}: {shift.name} ({shift.source}), {shift.samples:,} images per domain", "bold")
    for each in shift.maps:
        table = Table(title=f"{each.title}, %", title_justify="left")
        table.add_column("corruption", no_wrap=True)
        for severity in shift.severities:
            table.add_column(str(severity), justify="right")
        for name, row, shades in zip(shift.corruptions, each.values, each.shades, strict=True):
            heat = [HEAT[min(shade, len(HEAT) - 1)] for shade in shades]
            table.add_row(name, *(Text(f"{100 * value:.1f}", style) for value, style in zip(row, heat, strict=True)))
        table.add_section()
        table.add_row("mean", *(f"{100 * value:.1f}" for value in each.by_severity))
        console.print(table)
        figures = f"clean {each.clean:.4f}, average {each.average:.4f}, worst {each.worst:.4f} ({each.worst_at})"
        console.say(f"{each.title}: {figures}.")
    console.say(shift.reading)


def write_heat_maps(shift: "Shift", stem: Path) -> None:
    """Write the heat maps as PNG and SVG."""
    from metacal.reporting.run_plots import plot_shift
    from metacal.reporting.style import FORMATS, house_style, save_figure

    with house_style():
        figure = plot_shift(shift)
    for suffix in FORMATS:
        save_figure(figure, stem.with_name(f"{stem.name}.{suffix}"))
