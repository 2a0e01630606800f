"""Structured vector and matrix scaling against probmetrics': ``python -m benchmarks.structured_scaling``.

NLL on held-out rows (ours less the peer's, mean over seeds and its standard error), and the processor time of a fit on
one thread, libraries taking turns after a fit to warm up: other processes do not count. Real predictions: two CIFAR
files of ``METACAL_TEST_DATA``; simulated ones: a temperature alone, a weight and a bias for each class, a full matrix.
The exit status is 1 if a target is missed.
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Part, Row, Target, measured, publish
from metacal.errors import MetacalWarning
from metacal.posthoc import CALIBRATORS, choose_calibrator

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecations within the peer's own imports
    from probmetrics.calibrators import get_calibrator

METHODS = {"structured_vector": "svs", "structured_matrix": "sms"}
FILES = ("wideresnet-16-4-cifar-10", "densenet-bc-100-cifar-100")
REAL_ROWS = (300, 1000, 5000)
SIMULATED = ((3, 200), (10, 500), (10, 3000), (50, 1000))
SHAPES = ("temperature", "vector", "matrix")
TEST_ROWS = 20_000
ROUNDS = 5
SPEED_TARGET, WORSE_BY = 3.0, 0.0
AUTO_SIZE, AUTO_SECONDS = (50_000, 100), 30.0

Split = tuple[Tensor, Tensor, Tensor, Tensor]
"""Probabilities and targets to fit on, probabilities and targets to score."""


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to save")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine")
    parser.add_argument("--seeds", type=int, default=4, help="splits of each case; 4")
    parser.add_argument("--only", choices=("fits", "auto"), help="one of the two parts")
    arguments = parser.parse_args()
    parts = {}
    if arguments.only != "auto":
        torch.set_num_threads(1)
        parts["fits"] = measured(lambda: measure_fits(arguments.seeds), arguments.wait)
    if arguments.only != "fits":
        torch.set_num_threads(min(2, os.cpu_count() or 1))
        parts["auto"] = measured(measure_auto, arguments.wait)
    publish("structured_scaling", parts, {"probmetrics": _version("probmetrics")}, arguments.json)


def measure_fits(seeds: int) -> Part:
    """NLL and time of both methods in every case."""
    rows: list[Row] = []
    targets = []
    for case, splits in cases(seeds):
        for method, peer in METHODS.items():
            differences, ours, speeds = [], [], []
            for number, split in enumerate(splits):
                pair = scores_of(method, peer, split)
                ours.append(pair[0])
                differences.append(pair[0] - pair[1])
                if number == 0:
                    speeds.append(speed_of(method, peer, split))
            error = float(np.std(differences, ddof=1) / len(differences) ** 0.5) if len(differences) > 1 else None
            difference = float(np.mean(differences))
            rows.append(
                {
                    "case": case,
                    "method": method,
                    "NLL": float(np.mean(ours)),
                    "ours less peer's": f"{difference:+.5f}",
                    "standard error": error,
                    "ms": 1e3 * speeds[0][0],
                    "peer's time / ours": speeds[0][1],
                }
            )
            name = f"{case}, {method}"
            targets.append(Target(f"{name}: NLL less the peer's", difference, WORSE_BY, at_least=False))
            targets.append(Target(f"{name}: peer's time / ours", speeds[0][1], SPEED_TARGET, at_least=True))
    notes = ["Float32 probabilities for both; processor time, the best of five rounds of one split, one thread each."]
    return Part("Structured scaling", rows, targets, notes)


def measure_auto() -> Part:
    """Seconds that `choose_calibrator` takes, all methods and folds."""
    logits, labels = simulated(AUTO_SIZE[1], AUTO_SIZE[0], "vector", 0)
    started, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetacalWarning)
        chosen, trials = choose_calibrator(logits=logits, targets=labels)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    rows: list[Row] = [{"method": t.name, "NLL": t.nll, "chosen": "yes" if t.name == chosen else ""} for t in trials]
    size = f"{AUTO_SIZE[0]:,} x {AUTO_SIZE[1]:,}"
    return Part(
        f"auto on {size}",
        rows,
        [Target(f"seconds of auto on {size}", seconds, AUTO_SECONDS, at_least=False)],
        [f"{cpu:.1f} s of processor time."],
    )


def cases(seeds: int) -> Iterator[tuple[str, list[Split]]]:
    """Name and splits of every case; the real ones only where the files are."""
    folder = Path(os.environ.get("METACAL_TEST_DATA", "")) / "predictions"
    for name in FILES:
        if not (folder / f"{name}.npz").exists():
            continue
        with np.load(folder / f"{name}.npz") as file:
            probs, labels = torch.tensor(file["predictions"]), torch.tensor(file["ground_truth"]).reshape(-1).long()
        for samples in REAL_ROWS:
            splits = []
            for seed in range(seeds):
                order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
                fitting, rest = order[:samples], order[max(REAL_ROWS) :]
                splits.append((probs[fitting], labels[fitting], probs[rest], labels[rest]))
            yield f"{name}, n = {samples:,}", splits
    for shape in SHAPES:
        for num_classes, samples in SIMULATED:
            splits = []
            for seed in range(seeds):
                logits, labels = simulated(num_classes, samples + TEST_ROWS, shape, seed)
                probs = torch.softmax(logits, dim=1).float()
                splits.append((probs[:samples], labels[:samples], probs[samples:], labels[samples:]))
            yield f"{shape}, K = {num_classes}, n = {samples:,}", splits


def simulated(num_classes: int, samples: int, shape: str, seed: int) -> tuple[Tensor, Tensor]:
    """Logits twice too large, and labels drawn from what a map of this shape makes of them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    logits = 2.0 * normal(samples, num_classes)
    logits[torch.arange(samples), torch.randint(num_classes, (samples,), generator=generator)] += 3.0
    true = logits
    if shape == "vector":
        true = logits * (1.0 + 0.3 * normal(num_classes)) + 0.5 * normal(num_classes)
    elif shape == "matrix":
        mixing = 0.5 / num_classes**0.5 * normal(num_classes, num_classes)
        true = logits + logits @ mixing.T + 0.3 * normal(num_classes)
    labels = torch.multinomial(torch.softmax(true, dim=1), 1, generator=generator).squeeze(1)
    return 2.0 * logits, labels


def scores_of(method: str, peer: str, split: Split) -> tuple[float, float]:
    """Held-out NLL of ours and of the peer's."""
    probs, labels, rest, truth = split
    ours = CALIBRATORS[method]().fit(probs=probs, targets=labels).predict_proba(probs=rest)
    theirs = get_calibrator(peer)
    theirs.fit(probs.numpy(), labels.numpy())
    said = torch.as_tensor(theirs.predict_proba(rest.numpy()))
    return _nll(ours, truth), _nll(said, truth)


def speed_of(method: str, peer: str, split: Split) -> tuple[float, float]:
    """Seconds of our fit, and how often it fits into the peer's."""
    probs, labels = split[:2]
    arrays = probs.numpy(), labels.numpy()

    def fit_ours() -> None:
        CALIBRATORS[method]().fit(probs=probs, targets=labels)

    def fit_peers() -> None:
        get_calibrator(peer).fit(*arrays)

    best = dict.fromkeys((fit_ours, fit_peers), float("inf"))
    for _ in range(ROUNDS):
        for fit in best:
            start = time.process_time()
            fit()
            best[fit] = min(best[fit], time.process_time() - start)
    return best[fit_ours], best[fit_peers] / best[fit_ours]


def _nll(probs: Tensor, targets: Tensor) -> float:
    at = probs.double().gather(1, targets.unsqueeze(1))
    return float(-at.clamp(min=1e-30).log().mean())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
