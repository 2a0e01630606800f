"""``metacal demo``: compares two prediction files, trains with and without meta-calibration, recommends one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from metacal.cli.options import JSONFile, check_places
from metacal.cli.terminal import Console
from metacal.files import write_json

if TYPE_CHECKING:
    from torch import Tensor

    from metacal.evaluation import Comparison

SEEDS, EPOCHS, BATCH = range(5), 150, 30
TRAINED, HELD_OUT = 120, 80
"""Of 1,797 digits; all others are the test set."""
PLAIN, SCALED, SMOOTHED, META = "cross-entropy", "cross-entropy + T", "label smoothing + T", "meta-calibration"
SMOOTHING = 0.05
Data = Sequence["Tensor"]
Runs = Sequence[Mapping[str, Any]]
"""Figures of each method and seed."""


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where files and pages go.")] = Path(
        "metacal-demo"
    ),
    json_file: JSONFile = None,
) -> None:
    """Show evaluation, calibration and training at work, and recommend a method.

    The files are predictions of a WideResNet on CIFAR-10, as trained and with a fitted temperature. The training is on
    handwritten digits; all methods use the same labels. Takes less than a minute on an idle machine.

    Example: [bold]metacal demo --output metacal-demo --json figures.json[/]
    """
    import torch

    check_places(json=json_file)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small networks gain nothing from more
    console = Console()
    try:
        comparison = compare_files(output, console)
        runs = train_all(output, console)
    finally:
        torch.set_num_threads(threads)
    console.print()
    console.say("What to do", "bold")
    console.say(f"Predictions: {advice_on_files(comparison)}")
    console.say(f"Training: {advice_on_training(runs)}")
    console.say(f"Open {output / 'predictions.html'} and {output / 'training.html'} in a browser.")
    if json_file is not None:
        write_json(json_file, {"predictions": comparison.to_dict(), "training": runs})


def compare_files(output: Path, console: Console) -> "Comparison":
    """Fit a temperature on one part of the bundled predictions, and compare the other part before and after."""
    import numpy as np

    import metacal
    from metacal.evaluation import example_predictions
    from metacal.posthoc import TemperatureScaling

    console.say("1. Evaluate and fix predictions: a WideResNet on CIFAR-10, 10,000 images", "bold")
    probs, targets = example_predictions()
    fit, test = slice(0, 2000), slice(2000, None)
    scaling = TemperatureScaling().fit(probs=probs[fit], targets=targets[fit])
    temperature = float(scaling.temperature_)
    console.say(f"Fitted a temperature of {temperature:.2f} on 2,000 images; scoring the other 8,000 ...")
    models = {"as-trained": probs[test], "calibrated": scaling.predict_proba(probs=probs[test])}
    output.mkdir(parents=True, exist_ok=True)
    for name, scores in models.items():
        np.savez(output / f"{name}.npz", probs=np.asarray(scores), targets=np.asarray(targets[test]))
    comparison = metacal.evaluate(probs=models, targets=targets[test])
    for evaluation in comparison.evaluations:
        console.say(f"{evaluation.name}.npz: {str(evaluation).splitlines()[1]}")
        console.say(f"  {evaluation.verdict}")
    for difference in comparison.differences:
        if difference.figure in ("accuracy", "nll", "ece"):
            console.say(f"  {difference.verdict}")
    comparison.report(output / "predictions.html")
    return comparison


def train_all(output: Path, console: Console) -> list[dict[str, Any]]:
    """Train each method with each seed and return its figures; write a page that compares the last seed's models."""
    import torch
    from sklearn.datasets import load_digits

    import metacal
    from metacal.functional import expected_calibration_error, negative_log_likelihood

    console.print()
    console.say("2. Train a calibrated model: handwritten digits", "bold")
    inputs, labels = (torch.as_tensor(each) for each in load_digits(return_X_y=True))
    inputs = inputs.float() / 16.0
    console.say(
        f"Each method trains on the same {TRAINED} images. {HELD_OUT} held-out ones fit a temperature (T), or are "
        f"learned from; {len(labels) - TRAINED - HELD_OUT:,} are the test set."
    )
    runs: list[dict[str, Any]] = []
    for number, seed in enumerate(SEEDS, start=1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        parts = torch.split(order, [TRAINED, HELD_OUT, len(labels) - TRAINED - HELD_OUT])
        train, held_out, test = ((inputs[part], labels[part]) for part in parts)
        models = train_methods(train, held_out, test[0], seed)
        for method, logits in models.items():
            scores: dict[str, Any] = {"logits": logits, "targets": test[1]}
            error = float((logits.argmax(dim=1) != test[1]).double().mean())
            ece, nll = float(expected_calibration_error(**scores)), float(negative_log_likelihood(**scores))
            runs.append({"method": method, "seed": seed, "error": error, "ece": ece, "nll": nll})
        shown = ", ".join(f"{run['method']} {run['nll']:.3f}" for run in runs[-len(models) :])
        console.say(f"Seed {number} of {len(SEEDS)}, test NLL: {shown}")
    print_figures(runs, console)
    metacal.evaluate(logits=models, targets=test[1]).report(output / "training.html")
    return runs


def train_methods(train: Data, held_out: Data, test: "Tensor", seed: int) -> dict[str, "Tensor"]:
    """Train each method and return its logits for the test inputs."""
    from metacal.functional.temperature import temperature_with_prior

    found = {}
    for method in (SCALED, SMOOTHED, META):
        model = train_one(method, train, held_out, seed)
        logits = model(test).detach().double()
        if method == SCALED:
            found[PLAIN] = logits
        if method != META:  # which has folded its own in, fitted in the same way
            logits = logits / temperature_with_prior(logits=model(held_out[0]).detach().double(), targets=held_out[1])
        found[method] = logits
    return found


def train_one(method: str, train: Data, held_out: Data, seed: int) -> Any:
    """Train a network with one method, from the same weights and with the same batches as the others."""
    import torch
    from torch import nn

    import metacal

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [EPOCHS // 2, 3 * EPOCHS // 4])
    meta = metacal.MetaCalibrator(model, optimizer, meta=[held_out]) if method == META else None
    loss_function = nn.CrossEntropyLoss(label_smoothing=SMOOTHING if method == SMOOTHED else 0.0)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(train[0])), BATCH):
            x, y = train[0][rows], train[1][rows]
            loss = loss_function(model(x), y) if meta is None else meta.step(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    if meta is not None:
        meta.finish()
    return model.eval()


def print_figures(runs: Runs, console: Console) -> None:
    """Print a table of means over seeds."""
    table = Table(title=f"Test set, mean of {len(SEEDS)} seeds", title_justify="left")
    for title in ("trained with", "error %", "ECE %", "NLL"):
        table.add_column(title, justify="left" if title == "trained with" else "right")
    for method in (PLAIN, SCALED, SMOOTHED, META):
        error, ece, nll = (sum(values_of(runs, method, key)) / len(SEEDS) for key in ("error", "ece", "nll"))
        table.add_row(method, f"{100 * error:.2f}", f"{100 * ece:.2f}", f"{nll:.3f}")
    console.print(table)


def values_of(runs: Runs, method: str, figure: str) -> list[float]:
    """Return one figure for every seed."""
    return [run[figure] for run in runs if run["method"] == method]


def difference(runs: Runs, method: str, other: str, figure: str) -> tuple[float, float]:
    """Mean paired difference over seeds, and half the width of its 95 % interval."""
    import numpy as np
    from scipy.stats import t

    gaps = np.subtract(values_of(runs, method, figure), values_of(runs, other, figure))
    return float(gaps.mean()), float(t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)


def advice_on_files(comparison: "Comparison") -> str:
    """Say which of the two files to use."""
    found = {each.figure: each for each in comparison.differences}
    if found["nll"].is_beyond_noise and not found["nll"].is_worse:
        return "use the calibrated file. `metacal calibrate` fits a temperature and writes such a file."
    return "keep the file as it is; the temperature does not lower its NLL beyond noise."


def advice_on_training(runs: Runs) -> str:
    """Recommend the simplest method that no other beats in NLL beyond noise, and say why."""
    for best in (SCALED, META, SMOOTHED):  # smoothing last: its strength has to be chosen
        others = {other: difference(runs, best, other, "nll") for other in (SCALED, META, SMOOTHED) if other != best}
        if all(gap <= noise for gap, noise in others.values()):
            break
    said = [
        f"{'lower than with' if gap < -noise else 'level with'} {other} ({gap:+.4f} ± {noise:.4f})"
        for other, (gap, noise) in others.items()
    ]
    return f"use {best}. No method has a lower NLL beyond noise: it is {' and '.join(said)}."
