"""The 210 runs of the main tables on 8, 64 and 512 GPUs: simulated from the paper's hours and our measured step ratio.

A run takes one GPU. The next run in the queue goes to the GPU that is free first (list scheduling), in the order of the
table or longest first. CE hours, and MC hours for the published cost, are those of the paper's table of training times;
the other methods cost as much as CE; our MC costs CE times the ratio in results/benchmarks/meta_step.json.
"""

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Part, Row, Target, publish
from metacal.lab.paper import TABLES
from metacal.lab.paper.exhibits import published_figures

GPUS = (8, 64, 512)
MEASURED = Path("results/benchmarks/meta_step.json")
COSTS = {"published": None, "ours": "every=1"}


@dataclass(frozen=True)
class Schedule:
    """Runs on GPUs.

    Attributes:
        makespan: hours until the last run is done.
        first_idle: hours until the first GPU has nothing left to do.
        gpu_hours: of all runs together.
        gpus: how many.
        stragglers: runs that still go on when nine tenths of that time are over.
    """

    makespan: float
    first_idle: float
    gpu_hours: float
    gpus: int
    stragglers: int

    @property
    def utilisation(self) -> float:
        """Share of the GPUs' time, until the last run is done, in which they work."""
        return self.gpu_hours / (self.gpus * self.makespan)


def main() -> None:
    publish("cluster_simulation", {"simulation": simulate(measured_ratios())})


def simulate(ratios: dict[str, dict[int, float]]) -> Part:
    """Every cost on every number of GPUs, in both orders."""
    rows: list[Row] = []
    worst = 0.0
    for cost, step in COSTS.items():
        hours = run_hours(ratios[step] if step else None)
        for gpus in GPUS:
            bound = max(max(hours), sum(hours) / gpus)
            for order, queue in (("table", hours), ("longest first", sorted(hours, reverse=True))):
                found = schedule(queue, gpus)
                rows.append(
                    {
                        "MC cost": cost,
                        "GPUs": gpus,
                        "order": order,
                        "makespan h": found.makespan,
                        "lower bound h": bound,
                        "first idle h": found.first_idle,
                        "stragglers": found.stragglers,
                        "GPU-hours": found.gpu_hours,
                        "utilisation": found.utilisation,
                    }
                )
                if order == "longest first":
                    worst = max(worst, found.makespan / bound)
    return Part(
        f"{len(hours)} runs of the main tables, a GPU each",
        rows,
        [Target("longest first, makespan / lower bound, worst case", worst, 4 / 3, at_least=False)],
        [
            "Simulated, not run: hours of the paper's hardware (one GPU a run), MC ratio measured on a CPU.",
            "Lower bound: the longest run, or all GPU-hours spread evenly, whichever is more.",
        ],
    )


def run_hours(mc_ratios: dict[int, float] | None) -> list[float]:
    """Hours of each run, in table order; MC takes what was published unless ratios (by number of classes) are given."""
    table, published = TABLES["main-ece"], published_figures()
    hours = []
    for row in table.rows:
        plain = published["time", row.dataset, row.model, "CE", "training_hours"].mean
        for column in table.columns:
            cost = plain
            if column.label == "MC":
                cost = (
                    published["time", row.dataset, row.model, "MC", "training_hours"].mean
                    if mc_ratios is None
                    else plain * mc_ratios[100 if row.dataset == "CIFAR-100" else 10]
                )
            hours += [cost] * len(table.seeds)
    return hours


def measured_ratios() -> dict[str, dict[int, float]]:
    """Time of a step of MC over a plain one: by kind of step, and by number of classes."""
    ratios: dict[str, dict[int, float]] = {}
    for part in json.loads(MEASURED.read_text())["parts"].values():
        for line in part["rows"]:
            if "K" in line:
                ratios.setdefault(line["step"], {})[line["K"]] = line["ratio"]
    return ratios


def schedule(hours: Sequence[float], gpus: int) -> Schedule:
    """Give each run, in order, to the GPU that is free first."""
    free = [0.0] * gpus
    for length in hours:
        heapq.heapreplace(free, free[0] + length)
    makespan = max(free)
    stragglers = sum(end > 0.9 * makespan for end in free)  # a GPU has no gaps: it has a run until it has none left
    return Schedule(makespan, min(free), sum(hours), gpus, stragglers)


if __name__ == "__main__":
    main()
