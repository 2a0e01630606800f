"""``metacal run``: tables and figures of the paper, from their runs to the page."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metacal.cli.terminal import Console
from metacal.errors import InvalidValueError
from metacal.lab.cli import DataDir
from metacal.lab.cli.exhibits import Output, Scale, Store, find_exhibits, in_order, narrow, print_exhibit, select

if TYPE_CHECKING:
    from metacal.lab.paper.exhibits import Draw
    from metacal.lab.paper.simulated import DrawStore
    from metacal.lab.training import StopRequest


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
    """Run what tables and figures need and is not there yet, and show them beside what was published.

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
