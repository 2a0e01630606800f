"""What the examples share: digits with few labels, and the table that each of them ends with."""

import argparse
import itertools
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from metacal.functional import expected_calibration_error, negative_log_likelihood
from metacal.lab.training.environment import provenance
from metacal.posthoc import TemperatureScaling

STARTED = time.perf_counter()
PEERS = {name: name for name in ("accelerate", "lightning", "transformers")} | {"scikit-learn": "sklearn"}

STEPS, BATCH, LR = 600, 32, 0.1
"""Batch size and learning rate of ``digits-drops`` in ``benchmarks/default/regimes.py``."""


@dataclass(frozen=True)
class Digits:
    """120 labelled digits: 80 to train on and 40 held out, which any method may use for all but training."""

    train: TensorDataset
    held_out: TensorDataset
    test: TensorDataset


def digits(seed: int) -> Digits:
    """A seeded split of scikit-learn's handwritten digits; 1,677 are left to test on."""
    features, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    features = ((features - features.mean()) / features.std()).float()
    parts = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).split(
        [80, 40, len(labels) - 120]
    )
    return Digits(*(TensorDataset(features[rows], labels[rows]) for rows in parts))


def batches(loader: Iterable, steps: int) -> Iterator:
    """So many batches, pass after pass."""
    return itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), steps)


def mlp() -> nn.Sequential:
    """Two hidden layers; the last layer is the head."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def optimizer_and_schedule(model: nn.Module, steps: int):
    """SGD with momentum; the learning rate is divided by 10 after half and after three quarters of the steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])


def arguments(description: str | None, seeds: int = 5) -> argparse.Namespace:
    """Options that all examples have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how often everything is run [default: {seeds}]")
    parser.add_argument("--quick", action="store_true", help="a few steps of one seed: does it run?")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    found = parser.parse_args()
    found.seeds = 1 if found.quick else found.seeds
    torch.set_num_threads(1)  # small models: threads would only wait for each other
    return found


Said = tuple[Tensor, Tensor]
"""Logits of the test samples, and their labels."""


def three_ways(train: Callable[[int, bool], nn.Module]) -> dict[str, Callable[[int], Said]]:
    """The methods to compare on digits, given what trains a network with a seed, with or without meta-calibration."""
    return {
        "cross-entropy": lambda seed: predict(train(seed, False), seed),
        "cross-entropy + temperature": lambda seed: predict(train(seed, False), seed, scales=True),
        "meta-calibrated": lambda seed: predict(train(seed, True), seed),
    }


@torch.no_grad()
def predict(network: nn.Module, seed: int, *, scales: bool = False) -> Said:
    """On the test digits; at the temperature that suits the held-out ones, if asked for."""
    data = digits(seed)
    network.eval()
    (x, y), (x_test, y_test) = data.held_out.tensors, data.test.tensors
    if not scales:
        return network(x_test), y_test
    scaling = TemperatureScaling().fit(logits=network(x), targets=y)
    return network(x_test) / scaling.temperature_, y_test


def compare(title: str, methods: Mapping[str, Callable[[int], Said]], options: argparse.Namespace) -> list[dict]:
    """Run every method with every seed and print a table; the first method is what the others are compared with."""
    scores: dict[str, dict[str, list[float]]] = {}
    for seed in range(options.seeds):
        for name, run in methods.items():
            started = time.perf_counter()
            logits, targets = run(seed)
            seconds = time.perf_counter() - started
            figures = {
                "accuracy": float((logits.argmax(dim=1) == targets).double().mean()),
                "nll": float(negative_log_likelihood(logits=logits, targets=targets)),
                "ece": float(expected_calibration_error(logits=logits, targets=targets)),
                "seconds": seconds,
            }
            for measure, value in figures.items():
                scores.setdefault(name, {}).setdefault(measure, []).append(value)
    first = next(iter(methods))
    rows = [_row(name, found, scores[first]) for name, found in scores.items()]
    _show(title, rows, options.seeds)
    if options.json:
        save(options.json, options.seeds, {"title": title, "rows": rows})
    return rows


def save(path: Path, seeds: int, found: dict) -> None:
    """Write figures as JSON, with where they come from."""
    about = provenance(shlex.join(["python", *sys.argv]), Path(__file__).parent)
    about |= {package: version(package) for package, module in PEERS.items() if module in sys.modules}
    about |= {"seeds": list(range(seeds)), "wall_seconds": round(time.perf_counter() - STARTED, 1)}
    path.write_text(json.dumps({"about": about, "seeds": seeds, **found}, indent=2) + "\n")


def _row(name: str, found: dict[str, list[float]], first: dict[str, list[float]]) -> dict:
    row: dict = {"method": name, **{measure: sum(values) / len(values) for measure, values in found.items()}}
    change = torch.tensor(found["ece"]).double() - torch.tensor(first["ece"]).double()
    row["ece_change"] = float(change.mean())
    row["half_width"] = None
    if len(change) > 1 and found is not first:
        row["half_width"] = float(stats.t.ppf(0.975, len(change) - 1) * change.std() / len(change) ** 0.5)
    return row


def _show(title: str, rows: list[dict], seeds: int) -> None:
    console = Console(width=max(Console().width, 110))
    table = Table(title=f"{title} ({seeds} seed{'s' if seeds > 1 else ''})", title_justify="left")
    for column in ("method", "accuracy %", "NLL", "ECE %", "change of ECE", "s"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["method"],
            f"{100 * row['accuracy']:.2f}",
            f"{row['nll']:.3f}",
            f"{100 * row['ece']:.2f}",
            _change(row),
            f"{row['seconds']:.1f}",
        )
    console.print(table)


def _change(row: dict) -> str:
    if row["half_width"] is None:
        return ""
    change, width = 100 * row["ece_change"], 100 * row["half_width"]
    verdict = "same" if abs(change) <= width else "better" if change < 0 else "WORSE"
    return f"{change:+.2f} ± {width:.2f} {verdict}"
