"""Where figures come from: the command, the code, the machine and the runs behind a folder of tables and figures."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import Draw
from metacal.lab.training.environment import provenance
from metacal.lab.training.run_folder import RunStore
from metacal.lab.training.spec import RunSpec


def prepare_provenance(
    command: Sequence[str], scale: str, specs: Iterable[RunSpec], store: RunStore, draws: Sequence[Draw] = ()
) -> dict[str, Any]:
    """Plain values for ``about.json``: what was run, with which versions, where, and how long all of it trained.

    Date and commit are those of the gathering; a run that knows its own commit says it.

    Args:
        command: word by word.
        scale: of the specs.
        specs: of the runs behind the figures; those that are complete are named.
        store: where runs are.
        draws: of simulated data, likewise.
    """
    kept = DrawStore(store.root)
    drawn = [kept.read(draw).get("seconds", 0.0) for draw in draws if kept.has(draw)]
    runs = []
    for spec in specs:
        folder = store.folder(spec)
        if folder.is_complete:
            scores = folder.read_scores()
            seconds = round(scores["train_seconds"], 3)
            run = {"run": spec.title, "hash": spec.hash, "seed": spec.seed, "train_seconds": seconds}
            begun = folder.read_environment().get("commit")
            runs.append(run | {"commit": begun} if begun else run)
    return {
        **provenance(shlex.join(command)),
        "scale": scale,
        "seeds": sorted({*(run["seed"] for run in runs), *(draw.seed for draw in draws)}),
        "train_seconds": round(sum(run["train_seconds"] for run in runs) + sum(drawn), 3),
        "draws": len(drawn),
        "runs": runs,
    }
