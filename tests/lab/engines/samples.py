"""Small runs for engines, and what they should leave in the store."""

import threading

from metacal.lab.engines import RunProgressed
from metacal.lab.training import build_spec

SMALL = {
    "dataset": "digits",
    "train_size": 64,
    "val_size": 64,
    "meta": "split",
    "meta_size": 32,
    "batch_size": 32,
    "epochs": 3,
    "milestones": [1],
    "model_options": {"hidden": [16]},
    "method": "mc",
}


def specs(count, **changes):
    return [build_spec({**SMALL, "seed": seed, **changes}) for seed in range(count)]


def figures(store, runs):
    """Scores and history of every run, without the time they took."""
    found = []
    for spec in runs:
        scores, history = store.folder(spec).read_scores(), store.folder(spec).read_history()
        scores.pop("train_seconds")
        found.append((scores, [{key: row[key] for key in row if "seconds" not in key} for row in history]))
    return found


class Record:
    """A listener that keeps what it is told, and can act at an event."""

    def __init__(self, act=None):
        self.events, self.act = [], act
        self.lock = threading.Lock()

    def __call__(self, event):
        self.events.append(event)
        if self.act is not None:
            self.act(event)

    def of(self, kind, spec=None):
        return [event for event in self.events if isinstance(event, kind) and spec in (None, event.spec)]

    def epochs(self, spec):
        """Epochs that were trained, in the order told; an attempt that goes on from epoch 5 tells nothing before 6."""
        return [event.epoch for event in self.of(RunProgressed, spec) if event.figures]

    def starts_from_zero(self, spec):
        return sum(event.epoch == 0 and not event.figures for event in self.of(RunProgressed, spec))
