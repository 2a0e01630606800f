"""How long a paired comparison of two models of 1,000,000 x 10 rows takes: ``python -m benchmarks.paired_speed``.

Everything that ``metacal.evaluate(probs={"old": ..., "new": ...})`` does is timed, and the comparison alone, in turns
with one ``amax`` over the classes, which has to read every score once and is the unit. Two threads. The exit status is
1 if the target is missed; wall times of a busy machine are too high.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import metacal
from benchmarks.data import synthetic_predictions
from benchmarks.report import Part, Row, Target, measured, publish
from metacal.evaluation import Comparison, Predictions, evaluate_predictions

ROWS, NUM_CLASSES, THREADS = 1_000_000, 10, 2
ROUNDS = 5
SECONDS = 3.0
WHOLE = "both evaluations and their comparison"


def main() -> None:
    """Measure, save, print; exit with 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    publish("paired_speed", {"paired": measured(measure, arguments.wait)})


def measure() -> Part:
    """Run the parts in turns; the median of each."""
    probs, targets = synthetic_predictions(ROWS, NUM_CLASSES)
    softer = probs.sqrt() / probs.sqrt().sum(dim=1, keepdim=True)
    models = [Predictions.from_probs(each, targets, name=name) for name, each in (("old", probs), ("new", softer))]
    evaluations = [evaluate_predictions(model) for model in models]
    steps: dict[str, Callable[[], object]] = {
        "amax": lambda: [model.scores.amax(dim=1) for model in models],
        "comparison of two evaluations": lambda: Comparison.of(evaluations),
        WHOLE: lambda: metacal.evaluate(probs={"old": probs, "new": softer}, targets=targets),
    }
    walls: dict[str, list[float]] = {name: [] for name in steps}
    busy: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS + 1):
        for name, step in steps.items():
            started, used = time.perf_counter(), time.process_time()
            step()
            walls[name].append(time.perf_counter() - started)
            busy[name].append(time.process_time() - used)
    medians = {name: statistics.median(seconds[1:]) for name, seconds in walls.items()}  # the first warms up
    rows: list[Row] = [
        {
            "step": name,
            "seconds": median,
            "CPU seconds": statistics.median(busy[name][1:]),
            "time / amax": median / medians["amax"],
        }
        for name, median in medians.items()
    ]
    return Part(
        f"Two models of {ROWS:,} x {NUM_CLASSES} rows, median of {ROUNDS} rounds, {THREADS} threads",
        rows,
        [Target(f"{WHOLE}, seconds", medians[WHOLE], SECONDS, at_least=False)],
    )


if __name__ == "__main__":
    main()
