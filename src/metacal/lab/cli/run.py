"""``metacal run``: tables and figures of the paper, from their runs to the page."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metacal.cli.terminal import Console
from metacal.errors import InvalidValueError, needs
from metacal.lab.cli.exhibits import command_of, open_store, print_exhibit, print_failures, write_paper_page
from metacal.lab.cli.show import STORE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metacal.lab.paper.exhibits import Draw
    from metacal.lab.training import StopRequest


@needs("lab")
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME... [KEY=VALUE...]", help="Tables and figures, and settings for all runs."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table and figure.")] = False,
    rows: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Only these rows, e.g. cifar-10/resnet18,svhn; cifar-10 is every row of it."
        ),
    ] = "",
    methods: Annotated[str, typer.Option(metavar="NAMES", help="Only these methods, e.g. ce,ls,mc.")] = "",
    seeds: Annotated[str, typer.Option(metavar="NUMBERS", help="Only these seeds, e.g. 0,1.")] = "",
    scale: Annotated[
        str, typer.Option(help="full: as published; cpu: minutes per image run, text in full; smoke: seconds.")
    ] = "full",
    store: Annotated[str, STORE] = "runs",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write tables (.md, .tex, .csv, .json), figures (.png, .svg) and report.html.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    jobs: Annotated[int, typer.Option(help="Runs at a time (local).")] = 1,
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs per run (ray).")] = 0.0,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the datasets.")] = None,
) -> None:
    """Run what tables and figures need and is not there yet, and show them beside what was published.

    Runs are kept in the store and shared between tables; a killed command goes on where it stopped.

    For example:

      metacal run main-ece --scale smoke

      metacal run synthetic synthetic-sweep synthetic-boundary -o synthetic

      metacal run table-6 --rows cifar-10 --methods ce,mc --seeds 0 --scale cpu --jobs 2

      metacal run cross-domain --scale cpu --rows cifar-10 --methods ce,ls,mc --seeds 0

      metacal run --all --scale smoke -o tables
    """
    from metacal.files import write_json
    from metacal.functional.arguments import check_choice
    from metacal.lab.cli.runs_progress import following
    from metacal.lab.cli.selection import find_exhibits, in_order, narrowed
    from metacal.lab.engines import LocalEngine, RayEngine
    from metacal.lab.paper.experiments import EXHIBITS
    from metacal.lab.paper.provenance import prepare_provenance
    from metacal.lab.paper.render import prepare_exhibit, write_exhibits
    from metacal.lab.training import Stopped, StopRequest
    from metacal.lab.training.recipes import read_overrides

    check_choice("--engine", engine, ("local", "ray"))
    names = [word for word in words or [] if "=" not in word]
    assignments = [word for word in words or [] if "=" in word]
    overrides = read_overrides(assignments)
    if bool(names) == everything:
        raise InvalidValueError("`NAME` must be given, or --all, but not both; `metacal ls` lists the names.")
    named = in_order(EXHIBITS.values()) if everything else [found for name in names for found in find_exhibits(name)]
    exhibits = narrowed(named, listed(rows), listed(methods), [number(seed) for seed in listed(seeds)])
    specs = {spec.hash: spec for exhibit in exhibits for spec in exhibit.specs(scale, overrides)}
    if overrides and not specs:
        raise InvalidValueError(f"`{next(iter(overrides))}` must not be set: nothing that was named has runs.")
    runs = open_store(store)
    missing = [spec for spec in specs.values() if runs.state(spec) != "complete"]
    draws = list(dict.fromkeys(draw for exhibit in exhibits for draw in exhibit.draws(scale)))
    stop = StopRequest()
    try:
        with stop.listening():
            fit_draws(draws, runs.root, stop)
            with following(len(missing)) as emit:
                chosen = RayEngine(address, gpus=gpus) if engine == "ray" else LocalEngine(jobs)
                failed = chosen.execute(missing, runs, data_dir=data_dir, emit=emit, stop=stop)
    except Stopped as stopped:
        Console(stderr=True).print("Stopped; what was done is kept. The same command goes on.", highlight=False)
        raise typer.Exit(128 + stopped.signal) from None
    chosen_part = {"rows": rows, "methods": methods, "seeds": seeds}
    prepared = [
        replace(
            prepare_exhibit(exhibit, runs, scale, overrides),
            command=command_of(exhibit.name, assignments, **chosen_part, scale=scale, store=store),
        )
        for exhibit in exhibits
    ]
    for data in prepared:
        print_exhibit(data, output)
    if output is not None:
        write_exhibits(prepared, output)
        about = prepare_provenance(["metacal", *sys.argv[1:]], scale, specs.values(), runs, draws)
        write_json(output / "about.json", about)
        page = write_paper_page(prepared, output / "report.html")
        Console().say(f"{page}: open it in a browser.")
    print_failures(failed)
    raise typer.Exit(1 if failed else 0)


def fit_draws(draws: "Iterable[Draw]", store: Path, stop: "StopRequest") -> None:
    """Fit the study's models on draws of simulated data that are not there yet."""
    from metacal.lab.cli.progress import steps
    from metacal.lab.engines.draws import fit_missing
    from metacal.lab.paper.draw_store import DrawStore

    with steps() as say:
        fit_missing(draws, DrawStore(store), stop, say)


def listed(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def number(text: str) -> int:
    """A seed."""
    if not text.isdecimal():
        raise InvalidValueError(f"`--seeds` must be integers >= 0 with commas between, got {text!r}.")
    return int(text)
