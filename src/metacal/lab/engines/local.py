"""`LocalEngine`: runs in this process, or in several processes of this machine."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from metacal.functional.arguments import check_integer
from metacal.lab.engines.attempt import attempt
from metacal.lab.engines.events import Listener, silence
from metacal.lab.engines.ledger import Ledger
from metacal.lab.engines.pool import WorkerPool
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

PAUSE = 0.1


class LocalEngine:
    """Executes runs on this machine.

    Args:
        jobs: how many at a time. One runs in this process; more run in processes of their own, which share the cores
            (and take turns on the GPUs, if there are any).
        hardware: of each run.

    Examples:
        >>> import tempfile
        >>> from metacal.lab.training import build_spec
        >>> spec = build_spec({"dataset": "digits", "epochs": 1, "train_size": 64})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     failures = LocalEngine().execute([spec], RunStore(folder))
        ...     failures, RunStore(folder).state(spec)
        ({}, 'complete')
    """

    def __init__(self, jobs: int = 1, hardware: Hardware | None = None) -> None:
        check_integer("jobs", jobs, 1)
        self.jobs = jobs
        self.hardware = hardware or Hardware()

    def execute(
        self,
        specs: Sequence[RunSpec],
        store: RunStore,
        *,
        data_dir: Path | None = None,
        emit: Listener = silence,
        stop: StopRequest | None = None,
    ) -> dict[str, str]:
        """Complete every run that can be completed.

        A run that is complete in the store is read, a begun one is resumed, and one that another process holds is left
        to it and looked at again after the others.

        Args:
            specs: what to run; a spec that comes twice is run once.
            store: where runs are kept.
            data_dir: folder of the datasets; see `metacal.lab.data.load_dataset`.
            emit: is told what happens, in this process.
            stop: asks all runs to stop; by default SIGINT and SIGTERM do.

        Returns:
            What was wrong with those that failed, by the hash of the spec.

        Raises:
            Stopped: a signal asked for it; the state of every run is saved.
        """
        with stopping(stop) as request:
            ledger = Ledger(specs, store, emit)
            if self.jobs == 1:
                self._execute_here(ledger, store, data_dir, emit, request)
            else:
                WorkerPool(self.jobs, self.hardware, store, data_dir).execute(ledger, emit, request)
            return ledger.failures

    def _execute_here(
        self, ledger: Ledger, store: RunStore, data_dir: Path | None, emit: Listener, stop: StopRequest
    ) -> None:
        while len(ledger):
            spec = ledger.take()
            stop.raise_if_asked()
            if spec is None:
                time.sleep(PAUSE)
                continue
            outcome = attempt(spec, store, hardware=self.hardware, data_dir=data_dir, emit=emit, stop=stop)
            if outcome.kind == "stopped":
                raise Stopped(outcome.signal)
            ledger.settle(spec, outcome)


@contextmanager
def stopping(stop: StopRequest | None) -> Iterator[StopRequest]:
    """The caller's request to stop, or one that takes signals."""
    if stop is not None:
        yield stop
        return
    with StopRequest().listening() as own:
        yield own
