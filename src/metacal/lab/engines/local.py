"""`LocalEngine`: runs in this process, or in several processes of this machine."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
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
            emit: receives events, in this process.
            stop: asks all runs to stop; by default SIGINT and SIGTERM do.

        Returns:
            What was wrong with those that failed, by the hash of the spec.

        Raises:
            Stopped: a signal asked for it; the state of every run is saved.
        """
        with StopRequest().listening() if stop is None else nullcontext(stop) as request:
            queue = RunQueue(specs, store, emit)
            if self.jobs == 1:
                execute_here(queue, Place(store, self.hardware, data_dir), emit, request)
            else:
                threads = self.hardware.threads or max(1, len(os.sched_getaffinity(0)) // self.jobs)
                shared = self.hardware.model_copy(update={"threads": threads})
                execute_in_processes(self.jobs, queue, Place(store, shared, data_dir), emit, request)
            return queue.failures


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


def execute_in_processes(jobs: int, queue: RunQueue, place: Place, emit: Listener, stop: StopRequest) -> None:
    """Execute until nothing is left, or until asked to stop; a run whose process dies is resumed in another."""
    gpus = visible_gpus(place.hardware)
    running: dict[int, RunProcess] = {}
    deaths: Counter[str] = Counter()
    asked = False
    try:
        while running or (len(queue) and not stop):
            if stop and not asked:
                asked = True
                for process in running.values():
                    process.ask_to_stop()
            for slot in range(jobs):
                if slot not in running and not stop and (spec := queue.take()) is not None:
                    running[slot] = RunProcess(spec, place, gpus[slot % len(gpus)] if gpus else None)
            connection.wait([process.line for process in running.values()], timeout=PAUSE)
            for slot, process in list(running.items()):
                is_over = process.future.done()  # asked before its last events are read
                for event in process.events():
                    emit(event)
                if not is_over:
                    continue
                del running[slot]
                spec, outcome = process.spec, process.close()
                if outcome is None:
                    deaths[spec.hash] += 1
                    outcome = Outcome("failed", error=f"Its process died {ATTEMPTS} times: killed, or out of memory?")
                    if asked or deaths[spec.hash] < ATTEMPTS:
                        queue.put_back(spec)
                        continue
                if not (asked and outcome.kind == "stopped"):
                    queue.settle(spec, outcome)
        if asked or len(queue):
            raise Stopped(stop.signal)
    finally:
        for process in running.values():
            process.close()


class RunProcess:
    """A run in a process of its own, the only one of its executor: when it dies, no other run is touched.

    The process is forked from a fresh one that has imported all it needs and nothing else: no GPU, no threads, no data.
    Events come through a pipe. A word through it asks for a stop; its end means that this process is gone.
    """

    def __init__(self, spec: RunSpec, place: Place, gpu: str | None) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.spec = spec
        self.line, self._theirs = context.Pipe()
        # The environment as it is now: the process that this one is forked from may be older.
        environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
        self._executor = ProcessPoolExecutor(1, context, initializer=set_up, initargs=(self._theirs, environment))
        # Ctrl-C reaches every process of a terminal; runs are asked to stop by this one, and do not hear it themselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.future: Future[Outcome] = self._executor.submit(work, spec, place)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ask_to_stop(self) -> None:
        """Ask the run to save and stop."""
        with suppress(OSError):
            self.line.send("stop")

    def events(self) -> Iterator[RunEvent]:
        """Events since the last call."""
        while True:
            try:
                if not self.line.poll():
                    return
                event = self.line.recv()
            except (EOFError, OSError):  # it died
                return
            self._theirs.close()  # the process has its own by now; with this one open, its death would not end the line
            yield event

    def close(self) -> Outcome | None:
        """End the process, after its run, if it is not over, is saved; None if it died."""
        if not self.future.done():
            self.line.close()
        self._executor.shutdown()
        self.line.close()
        self._theirs.close()
        try:
            return self.future.result()
        except BrokenProcessPool:
            return None
        except Exception as error:
            return Outcome("failed", error=sentence(error))


line_to_parent: list[Connection] = []
stop_of_run = StopRequest()
busy = threading.Lock()
"""In the process of a run: its end of the pipe, its request to stop, and a lock that is held during the run."""


def set_up(line: Connection, environment: dict[str, str]) -> None:
    """Begin the process of a run."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    line_to_parent.append(line)
    threading.Thread(target=obey, args=(line,), daemon=True).start()


def obey(line: Connection) -> None:
    """Stop the run when asked to; leave when the process that started this one is gone, once the run is saved."""
    with suppress(EOFError, OSError):
        while line.recv():
            stop_of_run.signal = signal.SIGTERM
    stop_of_run.signal = signal.SIGTERM
    with busy:
        os._exit(1)


def work(spec: RunSpec, place: Place) -> Outcome:
    """What the process does."""

    def tell(event: RunEvent) -> None:
        with suppress(OSError):  # nobody is there any more: the run is stopped
            line_to_parent[0].send(event)

    with busy, stop_of_run.listening():
        return attempt(spec, place, tell, stop_of_run)


def visible_gpus(hardware: Hardware) -> list[str]:
    """The GPUs that runs may use, as CUDA names them; none if they are not asked for, or a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]
