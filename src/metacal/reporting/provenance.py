"""Where figures come from: the command, the code, the machine and the runs behind a folder of tables and figures."""

import platform
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any

from metacal.runs.environment import commit, environment
from metacal.runs.paper import Draw
from metacal.runs.run_store import RunStore
from metacal.runs.spec import RunSpec


def prepare_provenance(
    command: Sequence[str], preset: str, specs: Iterable[RunSpec], store: RunStore, draws: Iterable[Draw] = ()
) -> dict[str, Any]:
    """Plain values for ``about.json``: what was run, with which versions, where, and how long each run trained.

    Args:
        command: word by word.
        preset: of the specs.
        specs: of the runs behind the figures; those that are complete are named.
        store: where runs are.
        draws: of simulated data, likewise.
    """
    runs = []
    for spec in specs:
        folder = store.folder(spec)
        if folder.is_complete:
            scores = folder.read_scores()
            seconds = round(scores["train_seconds"], 3)
            runs.append({"run": spec.title, "hash": spec.hash, "seed": spec.seed, "train_seconds": seconds})
    return {
        "command": shlex.join(command),
        "preset": preset,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        **{key: value for key, value in environment().items() if key not in ("started", "system")},
        "system": platform.system(),
        "seeds": sorted({*(run["seed"] for run in runs), *(draw.seed for draw in draws)}),
        "train_seconds": round(sum(run["train_seconds"] for run in runs), 3),
        "runs": runs,
    }
