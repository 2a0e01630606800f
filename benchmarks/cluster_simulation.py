"""The 210 runs of the main tables on 8, 64 and 512 GPUs: simulated from the paper's hours and our measured step ratio.

A run takes one GPU. The next run in the queue goes to the GPU that is free first (list scheduling), in the order of the
table or longest first. CE hours, and MC hours for the published cost, are those of the paper's table of training times;
the other methods cost as much as CE; our MC costs CE times the ratio in results/benchmarks/meta_step.json. The same
hours give an estimate for the whole paper. Then all 210 are planned and executed on Ray nodes: `cluster_runs`.
"""

import argparse
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster_runs import run_on_nodes
from benchmarks.report import Part, Row, Target, measured, publish
from metacal.lab.engines.estimate import estimate_seconds
from metacal.lab.paper import EXHIBITS, TABLES
from metacal.lab.paper.exhibits import published_figures
from metacal.lab.training import RunSpec, build_spec
from metacal.lab.training.run_folder import RunStore

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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_simulation", description=__doc__)
    parser.add_argument("--no-ray", action="store_true", help="leave out the runs on Ray, which take some minutes")
    skips_ray = parser.parse_args().no_ray
    ratios = measured_ratios()
    parts = {"simulation": simulate(ratios), "paper": measured(lambda: whole_paper(ratios["every=1"]))}
    if not skips_ray:
        parts["nodes"] = run_on_nodes()
    publish("cluster_simulation", parts, is_whole=not skips_ray)


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


def whole_paper(mc_ratios: dict[int, float]) -> Part:
    """GPU-hours of every table and figure of the paper, run by run; a run that several need is counted once."""
    table, published = TABLES["main-ece"], published_figures()
    known = {}
    for row in table.rows:
        spec = build_spec({**row.settings, "method": "ce"})
        hours = published["time", row.dataset, row.model, "CE", "training_hours"].mean
        known[spec.dataset, spec.model] = hours / spec.epochs
    seen: set[str] = set()
    rows: list[Row] = []
    whole: list[RunSpec] = []
    for exhibit in (each for each in EXHIBITS.values() if each.number and each.rows):
        fresh = [spec for spec in exhibit.specs("full") if spec.hash not in seen]
        seen |= {spec.hash for spec in fresh}
        whole += fresh
        hours = 0.0
        for spec in fresh:
            is_learned = bool(spec.method.hyperparameters) and spec.outer == "paper"
            ratio = mc_ratios[100 if spec.dataset == "cifar100" else 10] if is_learned else 1.0
            hours += known[spec.dataset, spec.model] * spec.epochs * ratio
        if fresh:
            rows.append({"exhibit": exhibit.name, "runs that no other above has": len(fresh), "GPU-hours": hours})
    total = sum(float(row["GPU-hours"] or 0) for row in rows)
    here = estimate_seconds(whole, RunStore("none")) / 3600
    rows.append({"exhibit": "the whole paper", "runs that no other above has": len(whole), "GPU-hours": total})
    return Part(
        f"The whole paper: {len(whole)} runs, {total:,.0f} GPU-hours",
        rows,
        notes=[
            "Estimated, not run: an epoch of cross-entropy takes what the paper's table of training times says, on its "
            "GPUs, and a method that learns takes that times the measured ratio of our steps "
            "(results/benchmarks/meta_step.json, on a CPU).",
            f"On this machine the same runs would take about {here:,.0f} hours, from the measured time of a small "
            "network's step and the operations of each model (engines/estimate.py).",
        ],
    )


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
