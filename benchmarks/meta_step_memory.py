"""Peak memory of training with and without meta-calibration, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

from benchmarks.report import Part, Row, Target

STEPS = 4
TARGET = 1.15
ROUNDS = 3


def measure_memory() -> Part:
    """VmHWM of a process that takes a few training steps of a ResNet18, K = 100."""
    best = dict.fromkeys(("cross-entropy", "every=1", "every=1, as published"), float("inf"))
    for _ in range(ROUNDS):
        for name in best:
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.meta_step_memory", name], capture_output=True, text=True, check=True
            )
            best[name] = min(best[name], float(run.stdout))
    rows: list[Row] = [{"training": name, "peak MB": megabytes} for name, megabytes in best.items()]
    ratio = best["every=1"] / best["cross-entropy"]
    target = Target("peak memory, every=1 / cross-entropy", ratio, TARGET, at_least=False)
    return Part(f"Peak memory (VmHWM), ResNet18, K = 100, batch 64, {STEPS} steps, least of {ROUNDS}", rows, [target])


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
