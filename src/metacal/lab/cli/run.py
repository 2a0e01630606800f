"""``metacal run``: select tables and figures, train their missing runs, and print and write them."""

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
    from metacal.lab.paper.tables import TableData
    from metacal.lab.training import RunSpec, StopRequest
    from metacal.lab.training.run_folder import RunStore

Scale = Annotated[
    str, typer.Option(help="full: as published; cpu: minutes per image run, text as published; smoke: seconds.")
]
Store = Annotated[str, typer.Option("--store", metavar="DIR", help="Folder of all runs.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="Write tables (.md, .csv), figures (.png, .svg), report.html."),
]
PAGE_TITLE = "Meta-Calibration, measured"
DEFAULTS = {"scale": "full", "store": "runs"}
WIDE = 240
"""Characters per line if the output is not a terminal."""


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
    jobs: Annotated[int, typer.Option(help="Concurrent runs (local).")] = 1,
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs per run (ray).")] = 0.0,
    data_dir: DataDir = None,
) -> None:
    """Train the missing runs of tables and figures, and show the results next to the published ones.

    Runs are kept in the store and shared between tables; an interrupted command continues where it stopped.

    For example:

      metacal run main-ece --scale smoke

      metacal run synthetic synthetic-sweep synthetic-boundary -o synthetic

      metacal run table-6 --rows cifar-10 --methods ce,mc --seeds 0 --scale cpu --jobs 2

      metacal run cross-domain --scale cpu --rows cifar-10 --methods ce,ls,mc --seeds 0

      metacal run --all --scale smoke -o tables
    """
    from metacal.functional.arguments import check_choice
    from metacal.lab.cli.progress import exit_when_stopped, watch, watch_runs
    from metacal.lab.engines import LocalEngine, RayEngine
    from metacal.lab.paper import EXHIBITS

    check_choice("--engine", engine, ("local", "ray"))
    names, settings = ([word for word in words or [] if ("=" in word) == is_setting] for is_setting in (False, True))
    if bool(names) == everything:
        raise InvalidValueError("`NAME` or --all must be given, but not both; `metacal ls` lists the names.")
    named = in_order(EXHIBITS.values()) if everything else [found for name in names for found in find_exhibits(name)]
    exhibits = narrow(named, split_words(rows), split_words(methods), read_seeds(seeds))
    selection = select(exhibits, settings, rows=rows, methods=methods, seeds=seeds, scale=scale, store=store)
    runs, draws = selection.runs, selection.draws
    missing = [spec for spec in selection.specs if runs.state(spec) != "complete"]
    chosen = RayEngine(address, gpus=gpus) if engine == "ray" else LocalEngine(jobs)
    with exit_when_stopped() as stop:
        if draws:
            with watch("draws") as (say, bar):
                fit_draws(draws, runs.root, stop, say if bar is None else lambda text: bar(figures=text))
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
    root: Path,
    stop: "StopRequest",
    say: Callable[[str], None] = lambda text: None,
    fit: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """Fit the models on every draw that is missing from the store; raise `Stopped` on request."""
    from metacal.lab.paper.simulated import draw_file, fit_draw

    missing = [draw for draw in draws if not draw_file(root, draw).exists()]
    for count, draw in enumerate(missing, start=1):
        stop.raise_if_asked()
        say(f"Simulated data: draw {count} of {len(missing)}, {2 * draw.size} labels")
        write_json(draw_file(root, draw), (fit or fit_draw)(*draw))


def split_words(text: str) -> list[str]:
    """Split words at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_seeds(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    words = split_words(text)
    if bad := next((word for word in words if not word.isdecimal()), None):
        raise InvalidValueError(f"`--seeds` must be integers >= 0, separated by commas, got {bad!r}.")
    return list(map(int, words))


@dataclass(frozen=True)
class Selection:
    """The selected tables and figures with their plans at a scale, and the store of their runs."""

    plans: "Sequence[Plan]"
    runs: "RunStore"
    words: Sequence[str] = ()  # settings for all runs, and the options of the selection, as typed

    @property
    def specs(self) -> "list[RunSpec]":
        """The specs of all runs, without duplicates."""
        return list({spec.hash: spec for plan in self.plans for spec in plan.specs}.values())

    @property
    def draws(self) -> "list[Draw]":
        """All draws of simulated data, without duplicates."""
        return list(dict.fromkeys(draw for plan in self.plans for draw in plan.draws))

    def command_of(self, name: str) -> str:
        """Return the command for this selection of a table or figure."""
        return shlex.join(["metacal", "run", name, *self.words])

    def prepare(self) -> "list[TableData | FigureData]":
        """Prepare every table and figure from the complete runs."""
        from metacal.lab.paper.output import prepare_exhibit

        found = [(plan.exhibit.name, prepare_exhibit(plan, self.runs)) for plan in self.plans]
        return [replace(data, command=self.command_of(name)) for name, data in found]

    def write(self, prepared: "Sequence[TableData | FigureData]", output: Path) -> None:
        """Write tables and figures to files and one page, with their provenance."""
        import metacal
        from metacal.lab.paper.output import prepare_provenance, render_paper_page, write_exhibits

        write_exhibits(prepared, output)
        about = prepare_provenance(["metacal", *sys.argv[1:]], self.plans, self.runs)
        write_json(output / "about.json", about)
        page = output / "report.html"
        write_text(page, render_paper_page(prepared, PAGE_TITLE, metacal.__version__))
        Console().say(f"{page}: open it in a browser.")


def select(exhibits: "Iterable[Exhibit]", settings: Sequence[str] = (), **options: str) -> Selection:
    """Select tables and figures, with settings for all runs; the options are those of the command."""
    from metacal.lab.training.recipes import read_overrides
    from metacal.lab.training.run_folder import RunStore

    overrides, chosen = read_overrides(settings), {**DEFAULTS, **options}
    plans = [exhibit.plan(chosen["scale"], overrides) for exhibit in exhibits]
    if overrides and not any(plan.specs for plan in plans):
        raise InvalidValueError(f"`{next(iter(overrides))}` must not be set: what was selected has no runs.")
    given = {key: value for key, value in options.items() if value not in ("", DEFAULTS.get(key))}
    words = [*settings, *(word for key, value in given.items() for word in (f"--{key}", value))]
    runs = RunStore(chosen["store"])
    if others := runs.of_other_versions():
        Console(stderr=True).say(
            f"{len(others)} runs in {runs.root} were written by another version of metacal and are not used, "
            f"such as {others[0]}; `metacal validate` lists them.",
            "yellow",
        )
    return Selection(plans, runs, words)


def find_exhibits(name: str) -> "list[Exhibit]":
    """Find tables and figures by name (``main-ece``), number (``table-1``), or common prefix (``main``).

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
    """Sort tables and figures by their number in the paper, tables first; others come last."""
    return sorted(exhibits, key=lambda each: (not each.number, each.kind != "table", int(each.number or 0)))


def narrow(
    exhibits: "Iterable[Exhibit]", rows: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = ()
) -> "list[Exhibit]":
    """Restrict tables and figures to these rows, methods and seeds; empty means all.

    Args:
        exhibits: those without any of the rows or methods are left out, and duplicates are ignored.
        rows: whole words of row names, such as ``cifar-10`` (which is not ``cifar-100``) or ``cifar-10/resnet18``.
        methods: column labels in any case, with dashes for spaces and without commas (``ce-equal-data``), their part
            before a colon (``m1``), or, if no label matches, method names.
        seeds: of the runs.

    Raises:
        InvalidValueError: an unknown row or method, or no table or figure matches.
    """
    whole = list({exhibit.name: exhibit for exhibit in exhibits}.values())
    known_rows = [row.name for exhibit in whole for row in exhibit.rows]
    _check_known("--rows", [row for row in rows if not any(_is_in(row, name) for name in known_rows)], known_rows)
    columns = [column for exhibit in whole for column in exhibit.columns]
    known_methods = [name for column in columns for name in (*_names(column), _method(column)) if name]
    methods = [_dashed(name) for name in methods]
    _check_known("--methods", [name for name in methods if name not in known_methods], known_methods)
    parts = []
    for exhibit in whole:
        labels = {name for column in exhibit.columns for name in _names(column)}
        part = replace(
            exhibit,
            rows=tuple(row for row in exhibit.rows if not rows or any(_is_in(wanted, row.name) for wanted in rows)),
            columns=tuple(
                column
                for column in exhibit.columns
                if not methods or {*_names(column)} & {*methods} or _method(column) in {*methods} - labels
            ),
            seeds=tuple(dict.fromkeys(seeds)) or exhibit.seeds,
        )
        if (part.rows or not rows) and (part.columns or not methods):
            parts.append(part)
    if not parts:
        raise InvalidValueError(
            f"`--rows` and `--methods` must match a table or figure together, got {', '.join(rows)} with "
            f"{', '.join(methods)}."
        )
    return parts


def _is_in(wanted: str, name: str) -> bool:
    """Whether a row's name has these words: ``cifar-10`` is in ``cifar-10-c/average``, not in ``cifar-100/...``."""
    words = re.escape(wanted.lower().strip("/"))
    return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9])", name) is not None


def _names(column: "Column") -> tuple[str, str]:
    label = _dashed(column.label)
    return label, label.partition(":")[0]


def _dashed(label: str) -> str:
    return label.lower().replace(",", "").replace(" ", "-")


def _method(column: "Column") -> str:
    return str((column.settings or {}).get("method", ""))


def _check_known(option: str, unknown: list[str], known: list[str]) -> None:
    if unknown and not known:
        raise InvalidValueError(f"`{option}` must not be given: the selection has none, got {', '.join(unknown)}.")
    if unknown:
        near = "; ".join(f"{name!r}, nearest: {nearest(name, known)}" for name in unknown)
        raise InvalidValueError(f"`{option}` must be names that the tables and figures have, got {near}.")


def print_exhibit(data: "TableData | FigureData", output: Path | None) -> None:
    """Print a table, or the location of a figure."""
    from metacal.lab.paper.tables import TableData

    console = Console()
    console.say(data.title, "italic")
    if isinstance(data, TableData):
        print_table(data)
        missing = f"{data.missing} cells lack seeds (-)"
    else:
        where = f"-o DIR writes {data.name}.png" if output is None else f"{output / data.name}.png"
        console.say(f"{data.done} of {data.wanted} runs: {where}" if data.panels else "Nothing to plot yet.")
        missing = f"{data.missing} are missing"
    if data.missing:
        console.say(f"{missing}: {data.command} completes them.", "yellow")


def print_table(data: "TableData") -> None:
    """Print a table of our figures, each above the published one."""
    from metacal.lab.paper.tables import best_of, metric_name

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
    console.print(escape(f"{data.note} Dim: {data.beside}"), style="dim", highlight=False)
