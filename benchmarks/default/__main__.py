"""``python -m benchmarks.default develop`` (or ``confirm``): run what is missing, then print and save the table.

Runs are kept as JSON lines (``--store``), one for each, so that the command can be stopped and started again.
The image data sets are found through METACAL_TEST_DATA (folders as in PATH). ``--jobs`` runs several at once.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.default.methods import BASELINES, CANDIDATES
from benchmarks.default.regimes import IMAGE_REGIMES, REGIMES
from benchmarks.default.tables import confirmation, development
from benchmarks.default.train import Run, execute
from benchmarks.report import save_table
from metacal.lab.training.environment import commit, processor

STORE = Path("results/default")
LATER = tuple(name for name in CANDIDATES if name.startswith("second"))
FOURTH = ("ce", *(name for name in LATER if "squared" not in name))
ON_IMAGES = ("ce", "start .1", "not gated", "head", "centre", *LATER)
"""What is compared on images in development, where a run takes minutes."""
CONFIRMED = (*BASELINES, "paper", "default")


def runs_of(plan: str) -> list[Run]:
    """All runs of a plan, cheap ones first."""
    small = [regime for regime in REGIMES if regime not in IMAGE_REGIMES]
    if plan == "develop":
        developed = (*BASELINES, *(name for name in CANDIDATES if name not in ("paper", "default")))
        images = [*product(IMAGE_REGIMES, [600], ON_IMAGES), *product(["cifar100"], [601, 602], FOURTH)]
        return [*product(small, range(600, 605), developed), *images]
    on_images = [method for method in CONFIRMED if method != "paper"]  # which takes up to an hour there
    return [*product(small, range(300, 310), CONFIRMED), *product(IMAGE_REGIMES, range(3), on_images)]


def product(regimes: Iterable[str], seeds: Sequence[int], methods: Sequence[str]) -> list[Run]:
    """Seed by seed, so that a part of the runs is a part of the seeds."""
    regimes = list(regimes)
    return [Run(regime, method, seed) for seed in seeds for method in methods for regime in regimes]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What identifies a run."""
    return tuple(row[name] for name in ("regime", "method", "seed"))


def load(store: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Finished runs."""
    lines = store.read_text(encoding="utf-8").splitlines() if store.exists() else []
    rows = [json.loads(line) for line in lines if line.strip()]
    return {key(row): row for row in rows}


def one(run: Run) -> dict[str, Any]:
    """One run on one thread, and where it was made."""
    torch.set_num_threads(1)
    return execute(run) | {
        "torch": torch.__version__,
        "processor": processor(),
        "commit": commit(Path(__file__).parent),
    }


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default", description=__doc__)
    parser.add_argument("plan", choices=("develop", "confirm"))
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="regimes to run, separated by commas; the table has what is there")
    arguments = parser.parse_args()
    store = arguments.store / f"{arguments.plan}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    done, runs = load(store), runs_of(arguments.plan)
    wanted = set(arguments.only.split(",")) if arguments.only else set(REGIMES)
    missing = [run for run in runs if key(asdict(run)) not in done and run.regime in wanted]
    with ProcessPoolExecutor(arguments.jobs) as pool, store.open("a", encoding="utf-8") as file:
        futures = [pool.submit(one, run) for run in missing]
        for count, future in enumerate(as_completed(futures), 1):
            row = future.result()
            done[key(row)] = row
            print(json.dumps(row), file=file, flush=True)
            print(f"{count} of {len(missing)}: {row['regime']}, {row['method']}, {row['seed']}", file=sys.stderr)
    rows = [done[key(asdict(run))] for run in runs if key(asdict(run)) in done]
    table = {"develop": development, "confirm": confirmation}[arguments.plan](rows)
    print(table)
    save_table(
        store.with_suffix(".md"),
        f"python -m benchmarks.default {arguments.plan}",
        table,
        seeds=sorted({row["seed"] for row in rows}),
        runs=len(rows),
        train_seconds=round(sum(row["seconds"] for row in rows)),
    )


if __name__ == "__main__":
    main()
