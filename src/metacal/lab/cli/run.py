"""``metacal run``: which tables and figures a command names, from their runs to what is printed and written."""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from metacal.cli.terminal import Console
from metacal.errors import InvalidValueError, nearest
from metacal.files import write_json, write_text
from metacal.lab.cli import DataDir

if TYPE_CHECKING:
    from metacal.lab.paper.exhibits import Column, Draw, Exhibit, Plan
    from metacal.lab.paper.figures import FigureData
    from metacal.lab.paper.simulated import DrawStore
    from metacal.lab.paper.tables import TableData
    from metacal.lab.training import RunSpec, StopRequest
    from metacal.lab.training.run_folder import RunStore

Scale = Annotated[
    str, typer.Option(help="full: as published; cpu: minutes per image run, text in full; smoke: seconds.")
]
Store = Annotated[str, typer.Option("--store", metavar="DIR", help="Folder of all runs.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="Write tables (.md, .csv), figures (.png, .svg), report.html."),
]
PAGE_TITLE = "Meta-Calibration, measured"
DEFAULTS = {"scale": "full", "store": "runs"}
WIDE = 240
"""Columns of a table that goes to a file or another program."""


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME... [KEY=VALUE...]", help="Tables and figures, and settings for all runs."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table and figure.")] = False,
    rows: Annotated[str, typer.Option(metavar="NAMES", help="Only these rows, e.g. cifar-10/resnet18,svhn.")] = "",
    methods: Annotated[str, typer.Option(metavar="NAMES", help="Only these methods, e.g. ce,ls,mc.")] = "",
    seeds: Annotated[str, typer.Option(metavar="NUMBERS", help="Only these seeds, e.g. 0,1.")] = "",
    scale: Scale = "full",
    store: Store = "runs",
    output: Output = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    jobs: Annotated[int, typer.Option(help="Runs at a time (local).")] = 1,
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs per run (ray).")] = 0.0,
    data_dir: DataDir = None,
) -> None:
    """Train the runs that tables and figures still need, and show them beside the published figures.

    Runs are kept in the store and shared between tables; a killed command continues where it stopped.

    For example:

      metacal run main-ece --scale smoke

      metacal run synthetic synthetic-sweep synthetic-boundary -o synthetic

      metacal run table-6 --rows cifar-10 --methods ce,mc --seeds 0 --scale cpu --jobs 2

      metacal run cross-domain --scale cpu --rows cifar-10 --methods ce,ls,mc --seeds 0

      metacal run --all --scale smoke -o tables
    """
    from metacal.functional.arguments import check_choice
    from metacal.lab.cli.progress import exit_when_stopped, watch_runs, watch_steps
    from metacal.lab.engines import LocalEngine, RayEngine
    from metacal.lab.paper import EXHIBITS
    from metacal.lab.paper.simulated import DrawStore

    check_choice("--engine", engine, ("local", "ray"))
    names = [word for word in words or [] if "=" not in word]
    settings = [word for word in words or [] if "=" in word]
    if bool(names) == everything:
        raise InvalidValueError("`NAME` must be given, or --all, but not both; `metacal ls` lists the names.")
    named = in_order(EXHIBITS.values()) if everything else [found for name in names for found in find_exhibits(name)]
    exhibits = narrow(named, split_words(rows), split_words(methods), read_seeds(seeds))
    selection = select(exhibits, settings, rows=rows, methods=methods, seeds=seeds, scale=scale, store=store)
    runs = selection.runs
    missing = [spec for spec in selection.specs if runs.state(spec) != "complete"]
    chosen = RayEngine(address, gpus=gpus) if engine == "ray" else LocalEngine(jobs)
    with exit_when_stopped() as stop:
        if selection.draws:
            with watch_steps() as say:
                fit_draws(selection.draws, DrawStore(runs.root), stop, say)
        with watch_runs(len(missing)) as emit:
            failed = chosen.execute(missing, runs, data_dir=data_dir, emit=emit, stop=stop)
    prepared = selection.prepare()
    for data in prepared:
        print_exhibit(data, output)
    if output is not None:
        selection.write(prepared, output)
    for error in dict.fromkeys(failed.values()):
        Console(stderr=True).say(f"failed: {error}", "red")
    raise typer.Exit(1 if failed else 0)


def fit_draws(
    draws: "Iterable[Draw]",
    store: "DrawStore",
    stop: "StopRequest",
    say: Callable[[str], None] = lambda text: None,
    fit: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """Fit the study's models, by default with `fit_draw`, on every draw that the store does not have.

    Raises:
        Stopped: it was asked for; the draws before are kept.
    """
    from metacal.lab.paper.simulated import fit_draw

    missing = [draw for draw in draws if not store.has(draw)]
    for count, draw in enumerate(missing, start=1):
        stop.raise_if_asked()
        say(f"Simulated data: draw {count} of {len(missing)}, {2 * draw.size} labels")
        store.write(draw, (fit or fit_draw)(*draw))


def split_words(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_seeds(text: str) -> list[int]:
    """Numbers between commas."""
    for word in split_words(text):
        if not word.isdecimal():
            raise InvalidValueError(f"`--seeds` must be integers >= 0 with commas between, got {word!r}.")
    return [int(word) for word in split_words(text)]


@dataclass(frozen=True)
class Selection:
    """What a command is about: tables and figures with their plans at a scale, and the store of their runs."""

    plans: "Sequence[Plan]"
    runs: "RunStore"
    words: Sequence[str] = ()  # KEY=VALUE for all runs, and options that chose a part and the scale, as typed

    @property
    def specs(self) -> "list[RunSpec]":
        """Of all runs, each once."""
        return list({spec.hash: spec for plan in self.plans for spec in plan.specs}.values())

    @property
    def draws(self) -> "list[Draw]":
        """All draws of simulated data, each once."""
        return list(dict.fromkeys(draw for plan in self.plans for draw in plan.draws))

    def command_of(self, name: str) -> str:
        """The command that makes a table or figure, or this part of it."""
        return shlex.join(["metacal", "run", name, *self.words])

    def prepare(self) -> "list[TableData | FigureData]":
        """The numbers of every table and figure, as far as their runs are done."""
        from metacal.lab.paper.output import prepare_exhibit

        found = [(plan.exhibit.name, prepare_exhibit(plan, self.runs)) for plan in self.plans]
        return [replace(data, command=self.command_of(name)) for name, data in found]

    def write(self, prepared: "Sequence[TableData | FigureData]", output: Path) -> None:
        """Write tables and figures to files, on one page, and where they come from."""
        import metacal
        from metacal.lab.paper.output import prepare_provenance, render_paper_page, write_exhibits

        write_exhibits(prepared, output)
        about = prepare_provenance(["metacal", *sys.argv[1:]], self.plans, self.runs)
        write_json(output / "about.json", about)
        page = output / "report.html"
        write_text(page, render_paper_page(prepared, PAGE_TITLE, metacal.__version__))
        Console().say(f"{page}: open it in a browser.")


def select(exhibits: "Iterable[Exhibit]", settings: Sequence[str] = (), **options: str) -> Selection:
    """Tables and figures with settings for all runs; options are those of the command, ``scale`` and ``store`` too."""
    from metacal.lab.training.recipes import read_overrides

    overrides, scale = read_overrides(settings), options.get("scale", "full")
    plans = [exhibit.plan(scale, overrides) for exhibit in exhibits]
    if overrides and not any(plan.specs for plan in plans):
        raise InvalidValueError(f"`{next(iter(overrides))}` must not be set: nothing that was named has runs.")
    given = {key: value for key, value in options.items() if value not in ("", DEFAULTS.get(key))}
    words = [*settings, *(word for key, value in given.items() for word in (f"--{key}", value))]
    return Selection(plans, open_store(options.get("store", "runs")), words)


def open_store(place: str) -> "RunStore":
    """The store in a folder; runs in it that cannot be used are named."""
    from metacal.lab.training.run_folder import RunStore

    runs = RunStore(place)
    others = runs.of_other_versions()
    if others:
        Console(stderr=True).say(
            f"{len(others)} runs in {place} were written by another version of metacal and are not used, "
            f"{others[0]} for one; `metacal validate` names them.",
            "yellow",
        )
    return runs


def find_exhibits(name: str) -> "list[Exhibit]":
    """Tables and figures by name (``main-ece``), number (``table-1``), or the beginning of several names (``main``).

    Examples:
        >>> [exhibit.name for exhibit in find_exhibits("interleaved")]
        ['interleaved-ece', 'interleaved-error']
    """
    from metacal.lab.paper import EXHIBITS

    for exhibit in EXHIBITS.values():
        if name in (exhibit.name, exhibit.tag) or name == exhibit.label != "":
            return [exhibit]
    together = [exhibit for exhibit in EXHIBITS.values() if exhibit.name.startswith(f"{name}-")]
    if together:
        return together
    known = [*EXHIBITS, *(exhibit.tag for exhibit in EXHIBITS.values())]
    raise InvalidValueError(
        f"`NAME` must be a table or figure that `metacal ls` lists, got {name!r}; nearest: {nearest(name, known)}."
    )


def in_order(exhibits: "Iterable[Exhibit]") -> "list[Exhibit]":
    """Tables, then figures, each in the order of the paper; what is not in it comes last."""
    return sorted(exhibits, key=lambda each: (not each.number, each.kind != "table", int(each.number or 0)))


def narrow(
    exhibits: "Iterable[Exhibit]", rows: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = ()
) -> "list[Exhibit]":
    """The parts of tables and figures with these rows, methods and seeds; nothing named means all of them.

    Args:
        exhibits: the wholes; those that have none of the rows or methods are left out, and each is taken once.
        rows: whole words of row names, such as ``cifar-10`` (which is not ``cifar-100``) or ``cifar-10/resnet18``.
        methods: column labels in any case, with dashes for spaces and without commas (``ce-equal-data``), what stands
            before a colon in them (``m1``), or, where no column is called so, method names.
        seeds: which.

    Raises:
        InvalidValueError: a row or method that none of them has, or nothing has all that was asked for.
    """
    whole = {exhibit.name: exhibit for exhibit in exhibits}.values()
    known_rows = [row.name for exhibit in whole for row in exhibit.rows]
    _check_known("--rows", [row for row in rows if not any(_is_in(row, name) for name in known_rows)], known_rows)
    columns_of = [column for exhibit in whole for column in exhibit.columns]
    known_methods = [name for column in columns_of for name in (*_names(column), _method(column)) if name]
    methods = [_dashed(name) for name in methods]
    _check_known("--methods", [name for name in methods if name not in known_methods], known_methods)
    parts = []
    for exhibit in whole:
        picked = tuple(row for row in exhibit.rows if not rows or any(_is_in(wanted, row.name) for wanted in rows))
        columns = _called(methods, exhibit.columns) if methods else exhibit.columns
        if (picked or not rows) and (columns or not methods):
            chosen = tuple(dict.fromkeys(seeds)) or exhibit.seeds
            parts.append(replace(exhibit, rows=picked, columns=columns, seeds=chosen))
    if not parts:
        raise InvalidValueError(
            f"`--rows` and `--methods` must leave something, got {', '.join(rows)} with {', '.join(methods)}, "
            "which no table or figure has together."
        )
    return parts


def _is_in(wanted: str, name: str) -> bool:
    """Whether a row's name has these words: ``cifar-10`` is in ``cifar-10-c/average``, and not in ``cifar-100/...``."""
    words = re.escape(wanted.lower().strip("/"))
    return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9])", name) is not None


def _called(wanted: Sequence[str], columns: "Sequence[Column]") -> "tuple[Column, ...]":
    """The columns that are called so, and those of a method that no column is called after."""
    labels = {name for column in columns for name in _names(column)}
    return tuple(c for c in columns if {*_names(c)} & {*wanted} or _method(c) in {*wanted} - labels)


def _names(column: "Column") -> list[str]:
    label = _dashed(column.label)
    return [*dict.fromkeys((label, label.partition(":")[0]))]


def _dashed(label: str) -> str:
    return label.lower().replace(",", "").replace(" ", "-")


def _method(column: "Column") -> str:
    return str((column.settings or {}).get("method", ""))


def _check_known(option: str, unknown: list[str], known: list[str]) -> None:
    if unknown:
        if not known:
            raise InvalidValueError(f"`{option}` must be left out: what was named has none, got {', '.join(unknown)}.")
        near = "; ".join(f"{name!r}, nearest: {nearest(name, known)}" for name in unknown)
        raise InvalidValueError(f"`{option}` must name what the tables and figures have, got {near}.")


def print_exhibit(data: "TableData | FigureData", output: Path | None) -> None:
    """Draw a table; of a figure, say where it is."""
    from metacal.lab.paper.tables import TableData

    console = Console()
    console.say(data.title, "italic")
    if isinstance(data, TableData):
        print_table(data)
        missing = f"{data.missing} cells lack seeds (-)"
    else:
        where = f"-o DIR draws {data.name}.png" if output is None else f"{output / data.name}.png"
        console.say(f"{data.done} of {data.wanted} runs: {where}" if data.panels else "Nothing to draw yet.")
        missing = f"{data.missing} are missing"
    if data.missing:
        console.say(f"{missing}: {data.command} fills them.", "yellow")


def print_table(data: "TableData") -> None:
    """Draw a table: ours, and the published figure under it."""
    from metacal.lab.paper.tables import PUBLISHED, best_of, metric_name

    console = Console() if Console().is_terminal else Console(width=WIDE)
    drawn = Table()
    drawn.add_column("", overflow="fold", min_width=max(len(w) for line in data.cells for w in line[0].row.split()))
    drawn.add_column("metric", style="dim")
    for column in data.columns:
        drawn.add_column(escape(column), justify="right")
    for line in data.cells:
        best = best_of(line)
        ours = [f"[bold]{cell.text()}[/]" if cell.column in best else cell.text() for cell in line]
        cells = [f"{text}\n[dim]{cell.published_text()}[/]" for text, cell in zip(ours, line, strict=True)]
        drawn.add_row(line[0].row, metric_name(line[0].metric), *cells)
    for name, ranks in data.rank_lines:
        drawn.add_row(name, "", *ranks)
    console.print(drawn)
    about = f"{data.note} Dim: {PUBLISHED}"
    console.print(escape(about), style="dim", highlight=False)
