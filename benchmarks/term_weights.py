"""Weights of the terms that the paper names without a weight, chosen on validation samples.

For each method every weight is trained with on a few seeds; of the weights whose validation error is within a point
of the lowest, the one with the lowest validation ECE is taken. Test samples are not looked at. Digits, 300 samples.
"""

import itertools
import tempfile
from pathlib import Path

import torch

from benchmarks.report import save_table, typed
from metacal.lab.training import METHODS, Method, RunFolder, build_spec, run

WEIGHTS = (0.1, 0.3, 1.0, 3.0)
SEEDS = range(300, 305)
CHOSEN = {  # method -> (which terms, of the loss or the objective)
    "ce+sbece": "loss",
    "ce+savuc": "loss",
    "fl3+sbece": "loss",
    "fl3+savuc": "loss",
    "ce+dece": "loss",
    "mc-sbece": "objective",
    "mc-savuc": "objective",
}
SETTINGS = {
    **{"dataset": "digits", "train_size": 300, "val_size": 500, "meta_size": 150, "batch_size": 32},
    **{"meta": "split", "outer": "first", "select": "accuracy", "finish": False},  # as they were chosen
}


def weighted(method: Method, part: str, weight: float) -> Method:
    """The method with another weight on its last term."""
    terms = getattr(method, part)
    return method.model_copy(update={part: (*terms[:-1], terms[-1].times(weight))})


def main() -> None:
    """Train, choose, write the table."""
    torch.set_num_threads(1)
    lines = ["| method | weight | validation ECE % | validation error % | chosen |", "|---|---|---|---|---|"]
    for name, part in CHOSEN.items():
        figures: dict[float, list[tuple[float, float]]] = {weight: [] for weight in WEIGHTS}
        for weight, seed in itertools.product(WEIGHTS, SEEDS):
            spec = build_spec({**SETTINGS, "method": weighted(METHODS[name], part, weight), "seed": seed})
            with tempfile.TemporaryDirectory() as folder:
                val = run(spec, RunFolder(folder))["val"]
            figures[weight].append((val["ece"], 1.0 - val["accuracy"]))
        means = {
            w: [100 * sum(column) / len(SEEDS) for column in zip(*pairs, strict=True)] for w, pairs in figures.items()
        }
        lowest = min(error for _, error in means.values())
        fit = [weight for weight, (_, error) in means.items() if error <= lowest + 1.0]
        best = min(fit, key=lambda weight: means[weight][0])
        for weight, (ece, error) in means.items():
            lines.append(f"| {name} | {weight:g} | {ece:.2f} | {error:.2f} | {'yes' if weight == best else ''} |")
        print(f"{name}: {best:g}", flush=True)
    table = f"Means of seeds {list(SEEDS)}.\n\n" + "\n".join(lines)
    save_table(Path("results/study/term_weights.md"), typed("term_weights"), table, seeds=list(SEEDS))


if __name__ == "__main__":
    main()
