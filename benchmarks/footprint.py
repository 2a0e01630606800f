"""What is left besides speed: exactness over very many samples, memory, the cost of an interval, and of an import."""

import subprocess
import sys

from benchmarks import peers
from benchmarks.data import one_bin_events, real_predictions
from benchmarks.report import Part, Row, Target
from benchmarks.timing import interleave
from metacal.functional import calibration_error_interval

SAMPLES_IN_ONE_BIN = 20_000_000
EXACTNESS_TARGET = 1e-9
MEMORY_TARGET_MB = 20.0
IMPORT_TARGET = 1.15
IMPORT_ROUNDS = 9
PROBE_ROUNDS = 3


def measure_exactness() -> Part:
    """ECE of 20 million samples in one bin against the exact rational."""
    probs, targets, exact = one_bin_events(SAMPLES_IN_ONE_BIN)
    calls = peers.event_ece(probs, targets)
    rows: list[Row] = [{"library": "exact rational", "ECE": f"{exact:.12f}", "off by": 0.0}]
    errors = {}
    for name in (peers.METACAL, peers.TORCHMETRICS):
        value = calls[name]()
        errors[name] = abs(value - exact)
        rows.append({"library": name, "ECE": f"{value:.12f}", "off by": errors[name]})
    target = Target(
        "20,000,000 samples in one bin, |ours - exact|", errors[peers.METACAL], EXACTNESS_TARGET, at_least=False
    )
    return Part("ECE of 20,000,000 float32 probabilities in one bin", rows, [target])


def measure_memory() -> Part:
    """Peak extra memory of an ECE of 50,000 x 1,000 probabilities (200 MB)."""
    megabytes = [float(_output("-m", "benchmarks.memory_probe")) / 1e6 for _ in range(PROBE_ROUNDS)]
    rows: list[Row] = [{"run": number, "MB": value} for number, value in enumerate(megabytes, start=1)]
    target = Target("ECE of 50,000 x 1,000 float32, peak extra MB", max(megabytes), MEMORY_TARGET_MB, at_least=False)
    title = "Peak extra memory of ECE, 50,000 x 1,000 float32 (200 MB), each run in a process of its own"
    return Part(title, rows, [target])


def measure_bootstrap() -> Part:
    """Seconds for an interval of 1,000 resamples at n = 10,000."""
    probs, targets = next(iter(real_predictions().values()))

    def run() -> float:
        return float(calibration_error_interval(probs=probs, targets=targets, num_resamples=1000).high)

    timing = interleave({"interval": run}, rounds=5)["interval"]
    rows: list[Row] = [{"resamples": 1000, "samples": len(targets), "seconds": timing.seconds}]
    return Part("calibration_error_interval", rows)


def measure_import() -> Part:
    """Time of `import metacal` over that of `import torch`, each in new processes that take turns."""
    best = dict.fromkeys(("torch", "metacal"), float("inf"))
    for _ in range(IMPORT_ROUNDS):
        for name in best:
            # The process times the import alone, without the start of Python.
            code = f"import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"
            best[name] = min(best[name], float(_output("-c", code)))
    rows: list[Row] = [{"import": name, "seconds": seconds} for name, seconds in best.items()]
    target = Target("import metacal / import torch", best["metacal"] / best["torch"], IMPORT_TARGET, at_least=False)
    return Part(f"Import, best of {IMPORT_ROUNDS} new processes each, taking turns", rows, [target])


def _output(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout
