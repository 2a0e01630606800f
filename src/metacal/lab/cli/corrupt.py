"""``metacal data corrupt``: what the corruptions look like on a dataset's images."""

from pathlib import Path
from typing import Annotated

import typer

from metacal.cli.options import check_places
from metacal.cli.terminal import Console
from metacal.errors import InvalidValueError, needs


@needs("lab")
def corrupt(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="A dataset of images, by name or path.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The sheet to write, .png or .svg.")],
    sample: Annotated[int, typer.Option(min=0, help="First test image; each row takes the next one.")] = 0,
    only: Annotated[str, typer.Option(metavar="NAMES", help="Only these corruptions, e.g. fog,snow.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the corruptions.")] = 0,
    same: Annotated[bool, typer.Option("--same", help="Show one image in all rows.")] = False,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the datasets.")] = None,
) -> None:
    """Draw a contact sheet: test images, clean and under every corruption at every severity.

    Example: [bold]metacal data corrupt cifar10 -o sheet.png[/]

    Example: [bold]metacal data corrupt cifar10 -o weather.png --only snow,frost,fog --same --sample 5[/]
    """
    from metacal.lab.data import load_dataset
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, find_corruption
    from metacal.lab.data.corruptions import corrupt as corrupted
    from metacal.reporting.contact_sheet import plot_contact_sheet
    from metacal.reporting.figure_files import save_figure
    from metacal.reporting.style import house_style

    if output.suffix not in (".png", ".svg"):
        raise InvalidValueError(f"`--output` must end in .png or .svg, got {output}.")
    check_places(output=output)
    names = [find_corruption(each.strip()).name for each in only.split(",") if each.strip()] or list(CORRUPTIONS)
    images = load_dataset(name, folder=data_dir).test.inputs
    tiles = []
    for number, each in enumerate(names):
        image = images[(sample + (0 if same else number)) % len(images)].unsqueeze(0)
        shown = [corrupted(image, each, severity, seed=seed + number)[0] for severity in SEVERITIES]
        tiles.append([image[0], *shown])
    columns = ["clean", *map(str, SEVERITIES)]
    with house_style():
        figure = plot_contact_sheet(tiles, [each.replace("_", " ") for each in names], columns)
    save_figure(figure, output)
    Console().print(
        f"{output}: {len(names)} corruptions at {len(SEVERITIES)} severities", highlight=False, markup=False
    )
