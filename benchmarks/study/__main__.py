"""``python -m benchmarks.study PLAN``, one of `PLANS` (regime, methods, ...): run, resume, print the table.

Runs are kept in a JSON-lines file (``--store``), one line each; what is there is not run again, so the study can be
stopped at any time. ``--jobs`` runs several at once. The table is printed, and written beside the store.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import save_table
from benchmarks.study.plans import PLANS
from benchmarks.study.tables import TABLES
from benchmarks.study.train import Run, execute
from metacal.lab.training.environment import commit, processor

STUDY = Path(__file__).parent


def key(values: dict[str, object]) -> str:
    """What identifies a run: the fields of `Run`; those that a line lacks are at their defaults."""
    defaults = asdict(Run("", "", 0))
    return json.dumps({name: values.get(name, default) for name, default in defaults.items()}, sort_keys=True)


def load(store: Path) -> dict[str, dict[str, Any]]:
    """Finished runs by key."""
    if not store.exists():
        return {}
    rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {key(row): row for row in rows}


def one(run: Run) -> dict[str, object]:
    """One run on one thread, and where it was made."""
    torch.set_num_threads(1)
    return execute(run) | {"torch": torch.__version__, "processor": processor(), "commit": commit(STUDY.parent)}


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study", description=__doc__)
    parser.add_argument("plan", choices=sorted(PLANS))
    parser.add_argument("--store", type=Path, default=Path("results/study/runs.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=None, help="seeds a cell; default: the plan's own")
    arguments = parser.parse_args()
    plan = PLANS[arguments.plan]
    runs = plan(arguments.seeds) if arguments.seeds else plan()
    arguments.store.parent.mkdir(parents=True, exist_ok=True)
    done = load(arguments.store)
    missing = [run for run in runs if key(asdict(run)) not in done]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.store.open("a", encoding="utf-8") as file:
        futures = [pool.submit(one, run) for run in missing]
        for count, future in enumerate(as_completed(futures), 1):
            row = future.result()
            done[key(row)] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"\r{count} of {len(missing)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = [done[key(asdict(run))] for run in runs]
    table = TABLES[arguments.plan](rows)
    print(table)
    save_table(
        arguments.store.with_name(f"{arguments.plan}.md"),
        f"python -m benchmarks.study {arguments.plan}" + (f" --seeds {arguments.seeds}" if arguments.seeds else ""),
        table,
        versions={"scikit-learn": version("scikit-learn")},
        seeds=sorted({run.seed for run in runs}),
        runs=len(rows),
        train_seconds=round(sum(row["seconds"] for row in rows), 1),
    )


if __name__ == "__main__":
    main()
