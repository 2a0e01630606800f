"""``metacal ls``: what the paper has."""

from rich.box import SIMPLE
from rich.table import Table

from metacal.cli.options import JSONFile, check_places
from metacal.cli.terminal import Console
from metacal.files import write_json
from metacal.lab.cli.exhibits import in_order


def ls(
    json_file: JSONFile = None,
) -> None:
    """List every table and figure that one command makes: those of the paper, and some of our own.

    Example: [bold]metacal ls[/], then [bold]metacal show main-ece[/] and [bold]metacal run main-ece --scale smoke[/]
    """
    from metacal.lab.paper import EXHIBITS

    check_places(json=json_file)
    listed = Table(box=SIMPLE)
    for column in ("name", "number", "what it shows", "it takes"):
        listed.add_column(column, no_wrap=column != "what it shows")
    ordered = in_order(EXHIBITS.values())
    for exhibit in ordered:
        listed.add_row(exhibit.name, exhibit.tag if exhibit.number else "ours", exhibit.title, exhibit.cost)
    Console().print(listed)
    if json_file is not None:
        fields = ("name", "kind", "number", "label", "title", "claim")
        entries = [{field: getattr(exhibit, field) for field in fields} for exhibit in ordered]
        write_json(json_file, entries)
