"""How long short commands take: ``python -m benchmarks.startup``.

Each command runs in a process of its own, on one thread, and takes turns with ``python -c "import torch"``, which
is the unit: no command that computes something can be faster. The exit status is 1 if a target is missed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.data import synthetic_predictions
from benchmarks.report import Part, Row, Target, measured, publish

ROWS, NUM_CLASSES = 2000, 10
ROUNDS = 9
UNIT = 'python -c "import torch"'
COMMANDS = {
    UNIT: ["-c", "import torch"],
    "metacal --help": ["-m", "metacal", "--help"],
    "metacal ls": ["-m", "metacal", "ls"],
    f"metacal evaluate, {ROWS:,} rows": ["-m", "metacal", "evaluate", "test.npz"],
    f"metacal report, {ROWS:,} rows": ["-m", "metacal", "report", "test.npz"],
}
BOUNDS = {"metacal --help": 0.6, f"metacal evaluate, {ROWS:,} rows": 2.4}
"""0.5 s and 2 s where torch takes 0.83 s."""


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        probs, labels = synthetic_predictions(ROWS, NUM_CLASSES)
        np.savez(Path(folder) / "test.npz", probs=probs.numpy(), targets=labels.numpy())
        part = measured(lambda: measure(Path(folder)), arguments.wait)
    publish("startup", {"startup": part})


def measure(folder: Path) -> Part:
    """Run the commands in turns; the median of each."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS + 1):
        for name, words in COMMANDS.items():
            taken[name].append(seconds_of([sys.executable, *words], folder))
    medians = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}  # the first fills the caches
    rows: list[Row] = [
        {"command": name, "seconds": median, "time / import torch": median / medians[UNIT]}
        for name, median in medians.items()
    ]
    targets = [
        Target(f"{name}, time / import torch", medians[name] / medians[UNIT], bound, at_least=False)
        for name, bound in BOUNDS.items()
    ]
    return Part(
        f"Short commands, median of {ROUNDS} processes each, in turns, one thread",
        rows,
        targets,
        notes=(f"The file is an NPZ of {ROWS:,} x {NUM_CLASSES} float32 probabilities.",),
    )


def seconds_of(command: list[str], folder: Path) -> float:
    """Wall time of a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
