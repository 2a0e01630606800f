"""``metacal demo``: real predictions scored, as they are and after temperature scaling."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from metacal.cli.json_file import write_json
from metacal.evaluation.example import EXAMPLE, example_predictions
from metacal.evaluation.scores import Scores, score_predictions, temperature_scaled
from metacal.functional.expected_calibration_error import bin_statistics
from metacal.functional.sample_size import sample_size_warning
from metacal.functional.temperature import fit_temperature

ROWS = {
    "accuracy": "share right",
    "nll": "log-likelihood, nats",
    "brier": "squared distance",
    "brier_calibration": "what bins would mend",
    "brier_refinement": "and what not",
    "ece": "15 equal-width bins",
    "mce": "worst of those bins",
    "adaptive_ece": "15 equal-mass bins",
    "classwise_ece": "one against the rest",
    "debiased_ece": "l2, bias taken out",
    "sweep_ece": "bins by monotony",
    "smooth_ece": "no bins: a kernel",
}


def demo(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
) -> None:
    """Score real predictions that ship with the package, before and after temperature scaling.

    A WideResNet-16-4's probabilities on the CIFAR-10 test set. The temperature is fitted on every other sample; the
    figures are those of the rest.

    Example: [bold]metacal demo --json scores.json[/]
    """
    probs, targets = example_predictions()
    fitting, held_out = slice(0, None, 2), slice(1, None, 2)
    fit = fit_temperature(logits=probs[fitting].log(), targets=targets[fitting])
    before = score_predictions(probs=probs[held_out], targets=targets[held_out])
    after = score_predictions(probs=temperature_scaled(probs[held_out], fit.temperature), targets=targets[held_out])
    print_table(before, after, fit.temperature, len(targets[held_out]))
    warning = sample_size_warning(bin_statistics(probs=probs[held_out], targets=targets[held_out]))
    if warning:
        Console().print(warning, style="yellow")
    if json_file is not None:
        figures = {"temperature": fit.temperature, "before": before.as_dict(), "after": after.as_dict()}
        write_json(json_file, figures)


def print_table(before: Scores, after: Scores, temperature: float, samples: int) -> None:
    """Draw the two columns of figures."""
    console = Console()
    table = Table(title=f"{EXAMPLE.removesuffix('.npz')}, {samples:,} test images", title_justify="left")
    table.add_column("measure")
    table.add_column("as it is", justify="right")
    table.add_column(f"temperature {temperature:.2f}", justify="right")
    table.add_column("what it is", style="dim")
    for name, meaning in ROWS.items():
        table.add_row(name, f"{getattr(before, name):.4f}", f"{getattr(after, name):.4f}", meaning)
        if name == "ece":
            intervals = (f"{scores.ece_low:.4f} .. {scores.ece_high:.4f}" for scores in (before, after))
            table.add_row("  95 % interval", *intervals, "bootstrap")
    console.print(table)
    direction = "too confident" if temperature > 1.0 else "not confident enough"
    console.print(
        f"The model is {direction}: one temperature, fitted on other images, takes its ECE from "
        f"{before.ece:.1%} to {after.ece:.1%} and leaves every prediction as it was.",
        highlight=False,
    )
