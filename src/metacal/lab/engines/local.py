"""`LocalEngine`: runs in this process, or in several processes of this machine."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from metacal.functional.arguments import check_integer
from metacal.lab.engines.attempt import Listener, Outcome, Place, RunEvent, RunQueue, attempt, sentence, silence
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

ATTEMPTS = 2
"""A run whose process dies is tried this often."""
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
        to it and tried again after the others.

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
            queue = RunQueue(specs, store, emit)
            if self.jobs == 1:
                execute_here(queue, Place(store, self.hardware, data_dir), emit, request)
            else:
                threads = self.hardware.threads or max(1, len(os.sched_getaffinity(0)) // self.jobs)
                shared = self.hardware.model_copy(update={"threads": threads})
                workers = [Worker(number, Place(store, shared, data_dir)) for number in range(self.jobs)]
                execute_in_processes(queue, workers, emit, request)
            return queue.failures


@contextmanager
def stopping(stop: StopRequest | None) -> Iterator[StopRequest]:
    """The caller's request to stop, or one that takes signals."""
    if stop is not None:
        yield stop
        return
    with StopRequest().listening() as own:
        yield own


def execute_here(queue: RunQueue, place: Place, emit: Listener, stop: StopRequest) -> None:
    """Execute one run after the other in this process."""
    while len(queue):
        spec = queue.take()
        stop.raise_if_asked()
        if spec is None:
            time.sleep(PAUSE)
            continue
        outcome = attempt(spec, place, emit, stop)
        if outcome.kind == "stopped":
            raise Stopped(outcome.signal)
        queue.settle(spec, outcome)


def execute_in_processes(queue: RunQueue, workers: "Sequence[Worker]", emit: Listener, stop: StopRequest) -> None:
    """Execute until nothing is left, or until asked to stop; a worker that dies is replaced, and its run resumed."""
    deaths: Counter[str] = Counter()
    asked = False
    try:
        while any(worker.spec for worker in workers) or (len(queue) and not stop):
            if stop and not asked:
                asked = True
                for worker in workers:
                    worker.send_stop(stop.signal)
            for worker in workers:
                if worker.spec is None and not stop and (spec := queue.take()) is not None:
                    worker.start(spec)
            connection.wait([worker.line for worker in workers if worker.spec], timeout=PAUSE)
            for worker in workers:
                over = worker.is_over  # asked before its last events are read
                for event in worker.events():
                    emit(event)
                if not over:
                    continue
                spec, outcome = worker.finish()
                if outcome is None and not asked:
                    deaths[spec.hash] += 1
                    if deaths[spec.hash] < ATTEMPTS:
                        queue.put_back(spec)
                    else:
                        error = f"Its process died {ATTEMPTS} times: killed, or out of memory?"
                        queue.settle(spec, Outcome("failed", error=error))
                elif outcome is not None and not (asked and outcome.kind == "stopped"):
                    queue.settle(spec, outcome)
        if asked or len(queue):
            raise Stopped(stop.signal)
    finally:
        for worker in workers:
            worker.close()


class Worker:
    """A process with one run at a time, in an executor of its own: when it dies, no other executor is broken.

    It is forked from a fresh process that has imported all it needs and nothing else: no GPU, no threads, no data.
    Events come through a pipe. What goes the other way asks for a stop, and so does its end: this process is gone then.

    Attributes:
        spec: of the run it has.
        line: the pipe.
    """

    def __init__(self, number: int, place: Place) -> None:
        self.place = place
        self.spec: RunSpec | None = None
        gpus = visible_gpus(place.hardware)
        self._gpu = {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}
        self._future: Future[Outcome] | None = None
        self._open()

    def _open(self) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.line: Connection
        self.line, self._theirs = context.Pipe()
        # The environment as it is now: the process that workers are forked from may be older.
        arguments = (self._theirs, {**os.environ, **self._gpu})
        self._executor = ProcessPoolExecutor(1, context, initializer=set_up_worker, initargs=arguments)

    def start(self, spec: RunSpec) -> None:
        """Give it a run."""
        self.spec = spec
        # Ctrl-C reaches every process of a terminal; a worker is asked by this one, and does not hear it itself.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            try:
                self._future = self._executor.submit(work, spec, self.place)
            except BrokenProcessPool:  # it died while it had no run
                self._replace()
                self._future = self._executor.submit(work, spec, self.place)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send_stop(self, number: int | None) -> None:
        """Ask it to save its run and stop."""
        with suppress(OSError):
            self.line.send(number)

    def events(self) -> Iterator[RunEvent]:
        """What it has told since the last time."""
        while True:
            try:
                if not self.line.poll():
                    return
                message = self.line.recv()
            except (EOFError, OSError):  # it died
                return
            self._theirs.close()  # it has its own by now; with this one open, its death would not end the line
            yield message

    @property
    def is_over(self) -> bool:
        """Whether its run has ended, or its process."""
        return self._future is not None and self._future.done()

    def finish(self) -> tuple[RunSpec, Outcome | None]:
        """Take its run from it: the spec, and what came of it; None if the process died."""
        assert self.spec is not None
        assert self._future is not None
        spec, future, self.spec, self._future = self.spec, self._future, None, None
        try:
            outcome = future.result()
        except BrokenProcessPool:
            self._replace()
            return spec, None
        except Exception as error:
            return spec, Outcome("failed", error=sentence(error))
        if outcome.kind == "stopped":  # it would stop at once again
            self._replace()
        return spec, outcome

    def _replace(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        """End the process; if it still has a run, after that is saved."""
        if self.spec is not None:
            self.line.close()
        self._executor.shutdown()
        self.line.close()
        self._theirs.close()


stop_of_worker = StopRequest()
busy = threading.Lock()
lines: list[Connection] = []
"""Of a worker's process: its request to stop, held while it has a run, and the pipe to the process that started it."""


def set_up_worker(line: Connection, environment: dict[str, str]) -> None:
    """Begin a worker's process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    lines.append(line)
    threading.Thread(target=obey, args=(line,), daemon=True).start()


def obey(line: Connection) -> None:
    """Take requests to stop; leave when the process that started this one is gone, once the run is saved."""
    with suppress(EOFError, OSError):
        while True:
            stop_of_worker.signal = line.recv()
    stop_of_worker.signal = signal.SIGTERM
    with busy:
        os._exit(1)


def work(spec: RunSpec, place: Place) -> Outcome:
    """What a worker does with a spec."""

    def tell(event: RunEvent) -> None:
        with suppress(OSError):  # nobody is there any more: it is asked to stop
            lines[0].send(event)

    with busy, stop_of_worker.listening():
        return attempt(spec, place, tell, stop_of_worker)


def visible_gpus(hardware: Hardware) -> list[str]:
    """The GPUs that runs may use, as CUDA names them; none if they are not asked for, or a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]
