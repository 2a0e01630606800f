"""`Ledger`: what an engine still has to do, and what came of the rest."""

import time
from collections import deque
from collections.abc import Iterable

from metacal.errors import MetacalError
from metacal.lab.engines.attempt import Outcome, sentence
from metacal.lab.engines.events import Listener, RunFailed, RunFinished
from metacal.lab.training import RunSpec
from metacal.lab.training.run_folder import RunStore

LOOK_AGAIN = 0.5
"""Seconds until a run that another process holds is looked at again."""


class Ledger:
    """Runs in the order given, each once; those that are complete in the store are settled at once.

    Args:
        specs: what to run.
        store: where runs are kept.
        emit: is told of runs that finish or fail.

    Attributes:
        failures: what was wrong, by the hash of the spec.
    """

    def __init__(self, specs: Iterable[RunSpec], store: RunStore, emit: Listener) -> None:
        self.failures: dict[str, str] = {}
        self._emit = emit
        self._waiting: deque[tuple[float, RunSpec]] = deque()
        for spec in {spec.hash: spec for spec in specs}.values():
            try:
                if store.state(spec) != "complete":
                    self._waiting.append((0.0, spec))
                    continue
                store.folder(spec).check_free_for(spec, resume=True)
                self.settle(spec, Outcome("finished", scores=store.folder(spec).read_scores()))
            except MetacalError as error:
                self.settle(spec, Outcome("failed", error=sentence(error)))

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> RunSpec | None:
        """The next run that may be tried now, or None if there is none, or all are held by others for now."""
        now = time.monotonic()
        for position, (ready, spec) in enumerate(self._waiting):
            if ready <= now:
                del self._waiting[position]
                return spec
        return None

    def put_back(self, spec: RunSpec) -> None:
        """Try it again, now."""
        self._waiting.appendleft((0.0, spec))

    def settle(self, spec: RunSpec, outcome: Outcome) -> None:
        """Take note of an outcome; a run that another process holds goes to the back, to be looked at again."""
        if outcome.kind == "finished":
            self._emit(RunFinished(spec, outcome.scores))
        elif outcome.kind == "in use":
            self._waiting.append((time.monotonic() + LOOK_AGAIN, spec))
        else:
            error = outcome.error or "stopped by a signal; everything is saved."
            self.failures[spec.hash] = error
            self._emit(RunFailed(spec, error))
