"""Speed, memory and exactness of metacal, side by side with other libraries: ``python -m benchmarks.calibration``.

Every target is printed as met or MISSED; the exit status is 1 if one is missed. Figures are ratios of times taken in
one process, variants taking turns, best of several rounds.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import peers
from benchmarks.differentiable import measure_agreement, measure_classes, measure_dece
from benchmarks.footprint import measure_bootstrap, measure_exactness, measure_import, measure_memory
from benchmarks.report import Part, measured, publish
from benchmarks.speed import measure_classwise, measure_top_label

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


def main() -> None:
    """Measure, save, print; exit with 1 if a target was missed."""
    arguments = _arguments()
    torch.set_num_threads(THREADS)
    parts = {name: measured(PARTS[name], arguments.wait) for name in arguments.only or PARTS}
    publish("calibration", parts, peers.versions(), arguments.json, is_whole=not arguments.only)


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
    main()
