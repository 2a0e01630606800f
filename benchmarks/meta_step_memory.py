"""Peak memory of training with and without meta-calibration, each in a process of its own."""

import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks.report import Part, Row, Target

STEPS = 2
"""The second has everything: the optimiser's state, and graphs beside it."""
TARGET = 1.15


def measure_memory(kinds: Sequence[str], bounded: Collection[str], rounds: int) -> Part:
    """VmHWM of a process that takes a few training steps of a ResNet18, K = 100: plain ones first."""
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(rounds):
        for kind in best:
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.meta_step_memory", kind], capture_output=True, text=True, check=True
            )
            best[kind] = min(best[kind], float(run.stdout))
    plain = best[kinds[0]]
    rows: list[Row] = [{"training": kind, "peak MB": each, "ratio": each / plain} for kind, each in best.items()]
    targets = [
        Target(f"peak memory, {kind} / {kinds[0]}", best[kind] / plain, TARGET, at_least=False) for kind in bounded
    ]
    return Part(f"Peak memory (VmHWM), ResNet18, K = 100, batch 64, {STEPS} steps, least of {rounds}", rows, targets)


def main() -> None:
    """Train a little and print this process's peak in MB."""
    import torch

    from benchmarks.meta_step import trainer

    torch.set_num_threads(2)
    step = trainer(100, sys.argv[1])
    for _ in range(STEPS):
        step()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            print(int(line.split()[1]) / 1e3)


if __name__ == "__main__":
    main()
