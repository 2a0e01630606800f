"""``metacal demo``: what meta-learning does for calibration, and a page to look at, in under three minutes."""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from metacal.cli.options import JSONFile, check_places
from metacal.cli.terminal import Console
from metacal.files import write_json, write_text

if TYPE_CHECKING:
    from metacal.lab.paper.simulated import DrawStore
    from metacal.lab.training import StopRequest
    from metacal.lab.training.run_folder import RunStore

SIZES, DRAWS, TEST_POINTS = (20, 50), range(3), 100_000
SEEDS = range(3)
# Every method trains on 120 samples, and has 400 to choose a checkpoint and a temperature with: meta-calibration learns
# on the same ones. The regime was fixed on cross-entropy alone.
DIGITS = {
    **{"dataset": "digits", "train_size": 120, "val_size": 400, "epochs": 150, "milestones": [75, 112]},
    **{"batch_size": 32, "lr": 0.1, "model_options": {"hidden": [256, 256]}},
}
METHODS = ("ce", "ls", "meta")
NAMES = {
    "oracle": "the truth itself",
    "ce": "cross-entropy",
    "ls": "label smoothing",
    "mc": "meta-calibration",
    "meta": "meta-calibration",
    "ce-n": "cross-entropy on half of them",
}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where runs and report go.")] = Path(
        "metacal-demo"
    ),
    json_file: JSONFile = None,
) -> None:
    """Train with and without meta-calibration on data that ships with the package, and show what comes out.

    First simulated data, whose true probabilities are known; then handwritten digits with few labels. Every method sees
    the same labels. Takes about two minutes on two cores; what is done is kept, and not done again.

    Example: [bold]metacal demo --output metacal-demo --json figures.json[/]
    """
    import torch

    import metacal
    from metacal.lab.cli.progress import exit_when_stopped, watch_steps
    from metacal.lab.paper.simulated import DrawStore
    from metacal.lab.training.read_run import read_run
    from metacal.lab.training.run_folder import RunStore
    from metacal.reporting import prepare_report, render_page

    check_places(json=json_file)
    torch.set_num_threads(1)  # networks as small as these gain nothing from more, and lose much on a busy machine
    console = Console()
    store = RunStore(output / "runs")
    page = output / "report.html"
    with exit_when_stopped() as stop, watch_steps() as say:
        simulated = simulate(DrawStore(store.root), say, stop)
        digits = train_digits(store, say, stop)
        say("Writing the report")
        views = [read_run(store.folder(spec_of(method, 0)).path) for method in METHODS]
        write_text(page, render_page(prepare_report(views, "metacal demo: digits"), metacal.__version__))
    print_simulated(console, simulated)
    print_digits(console, digits)
    console.say(f"The report is {page}: open it in a browser.")
    if json_file is not None:
        write_json(json_file, {"simulated": simulated, "digits": digits})


def spec_of(method: str, seed: int) -> Any:
    """The run of one method and seed."""
    from metacal.lab.training import build_spec

    return build_spec({**DIGITS, "method": method, "seed": seed})


def simulate(kept: "DrawStore", say: Callable[[str], None], stop: "StopRequest") -> list[dict[str, Any]]:
    """Scores of the simulated study; draws that are there are read."""
    from metacal.lab.cli.run import fit_draws
    from metacal.lab.paper.exhibits import Draw

    draws = [Draw(size, seed, TEST_POINTS) for size in SIZES for seed in DRAWS]
    fit_draws(draws, kept, stop, say)
    return [
        {"method": method, "size": draw.size, "seed": draw.seed, "accuracy": each["accuracy"], "ece": each["ece"]}
        for draw in draws
        for method, each in kept.read(draw)["methods"].items()
    ]


def train_digits(store: "RunStore", say: Callable[[str], None], stop: "StopRequest") -> list[dict[str, Any]]:
    """Scores of the digits runs; complete ones are read, begun ones go on."""
    from metacal.lab.training import run

    scores = []
    for method in METHODS:
        for seed in SEEDS:
            say(f"Digits: {NAMES[method]}, seed {seed}")
            spec = spec_of(method, seed)
            found = run(spec, store.folder(spec), resume=True, stop=stop)["test"]
            figures = {"ece": found["ece"], "nll": found["nll"], "error": 1.0 - found["accuracy"]}
            scores.append({"method": method, "seed": seed, **figures})
    return scores


def print_simulated(console: Console, scores: list[dict[str, Any]]) -> None:
    """ECE by method and number of labels."""
    table = Table(title=f"Simulated data, ECE % on {TEST_POINTS:,} fresh points", title_justify="left")
    table.add_column("fitted by")
    for size in SIZES:
        table.add_column(f"{2 * size} labels", justify="right")
    for method in dict.fromkeys(score["method"] for score in scores):
        cells = [
            spread(100 * s["ece"] for s in scores if s["method"] == method and s["size"] == size) for size in SIZES
        ]
        table.add_row(NAMES[method], *cells)
    console.print(table)
    smallest = [score for score in scores if score["size"] == SIZES[0]]
    console.print(f"With {2 * SIZES[0]} labels: {verdict(smallest, 'mc')}", highlight=False)


def print_digits(console: Console, scores: list[dict[str, Any]]) -> None:
    """ECE, NLL and error by method."""
    title = "Handwritten digits: 120 training and 400 validation samples, each model with a fitted temperature"
    table = Table(title=title, title_justify="left")
    table.add_column("trained by")
    scales = {"ece": 100.0, "nll": 1.0, "error": 100.0}
    for name in ("ECE %", "NLL", "error %"):
        table.add_column(name, justify="right")
    for method in METHODS:
        rows = [score for score in scores if score["method"] == method]
        table.add_row(NAMES[method], *(spread(scale * row[figure] for row in rows) for figure, scale in scales.items()))
    console.print(table)
    console.print(f"{verdict(scores, 'meta')} Three seeds only, 359 test images.", highlight=False)


def verdict(scores: list[dict[str, Any]], ours: str) -> str:
    """How meta-calibration did against the others, whichever way it fell."""
    mean = {m: 100 * statistics.fmean(s["ece"] for s in scores if s["method"] == m) for m in ("ce", "ls", ours)}
    against = []
    for method in ("ce", "ls"):
        gain = mean[method] - mean[ours]
        against.append(f"{abs(gain):.1f} points of ECE {'better' if gain > 0 else 'WORSE'} than {NAMES[method]}")
    return f"Meta-calibration ends {' and '.join(against)}."


def spread(values: Iterable[float]) -> str:
    """Mean and standard deviation."""
    figures = list(values)
    return f"{statistics.fmean(figures):.2f} ± {statistics.stdev(figures):.2f}"
