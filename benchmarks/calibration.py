"""Speed, memory and exactness of metacal, side by side with other libraries: ``python -m benchmarks.calibration``.

Every target is printed as met or MISSED; the exit status is 1 if one is missed. Figures are ratios of times taken in
one process, variants taking turns, best of several rounds.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import peers
from benchmarks.differentiable import measure_agreement, measure_classes, measure_dece
from benchmarks.footprint import measure_bootstrap, measure_exactness, measure_import, measure_memory
from benchmarks.report import BUSY, Part, describe_run, save, show
from benchmarks.speed import measure_classwise, measure_top_label
from benchmarks.timing import OthersMeter, wait_for_quiet

THREADS = 2
RESULTS = Path("results/benchmarks/calibration.json")

PARTS: dict[str, Callable[[], Part]] = {
    "top-label": measure_top_label,
    "classwise": measure_classwise,
    "dece": measure_dece,
    "dece-classes": measure_classes,
    "agreement": measure_agreement,
    "exactness": measure_exactness,
    "memory": measure_memory,
    "bootstrap": measure_bootstrap,
    "import": measure_import,
}
"""Parts by name, in the order they run; their docstrings are the help."""


def main() -> int:
    """Measure, print, save; the exit status."""
    arguments = _arguments()
    console = Console()
    torch.set_num_threads(THREADS)
    parts = {}
    for name in arguments.only or PARTS:
        parts[name] = _measure(PARTS[name], arguments.wait)
        show(parts[name], console)
    path = arguments.json or (None if arguments.only else RESULTS)
    if path is not None:
        command = " ".join(["python -m benchmarks.calibration", *sys.argv[1:]])
        save(path, parts, describe_run(command, peers.versions()))
        console.print(f"Saved {path}")
    missed = [target for part in parts.values() for target in part.targets if not target.is_met]
    console.print(f"{len(missed)} of {sum(len(part.targets) for part in parts.values())} targets missed.")
    for target in missed:
        console.print(target.sentence())
    return 1 if missed else 0


def _measure(measure: Callable[[], Part], wait: float) -> Part:
    """Measure a part; again, while there is time to wait, if other processes were at work meanwhile."""
    end = time.monotonic() + wait
    while True:
        wait_for_quiet(end - time.monotonic(), BUSY)
        meter = OthersMeter()
        part = measure()
        part = replace(part, others_share=meter.share())
        if not part.others_share > BUSY or time.monotonic() > end:
            return part


def _arguments() -> argparse.Namespace:
    parts = "\n".join(f"  {name:<14}{measure.__doc__}" for name, measure in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibration",
        description=__doc__,
        epilog=f"parts:\n{parts}\n\nexample: python -m benchmarks.calibration --only top-label memory",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="NAME", help="run these parts; nothing is saved without --json"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"where to save figures; all parts: {RESULTS}")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait this long, a part, for a quiet machine"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
