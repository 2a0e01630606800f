"""`LocalEngine`, and what all engines share: events, and attempts at runs."""

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import torch

from metacal.errors import InUseError, MetacalError
from metacal.functional.arguments import check_integer
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest, run
from metacal.lab.training.events import EpochDone, Event, TrainingBegan, silence
from metacal.lab.training.run_folder import RunStore

TRY_AGAIN = 0.5
"""Seconds until a run that is locked by another process is tried again."""
ATTEMPTS = 2
"""How often a run is tried if its process dies."""
PAUSE = 0.1


@dataclass(frozen=True)
class RunStarted:
    """A run starts, or resumes from its checkpoint."""

    spec: RunSpec


@dataclass(frozen=True)
class RunProgressed:
    """The number of finished epochs, with the figures of the last one (none at the start)."""

    spec: RunSpec
    epoch: int
    epochs: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class RunFinished:
    """A run is complete; it may have been complete already."""

    spec: RunSpec
    scores: Mapping[str, Any]


@dataclass(frozen=True)
class RunFailed:
    """A run failed; the others continue."""

    spec: RunSpec
    error: str


RunEvent = RunStarted | RunProgressed | RunFinished | RunFailed
Listener = Callable[[RunEvent], None]


@dataclass(frozen=True)
class Outcome:
    """The result of an attempt; engines can send it between processes."""

    kind: Literal["finished", "failed", "in use", "stopped", "died"]  # in use: locked by another process
    scores: dict[str, Any] = field(default_factory=dict)  # if finished
    error: str = "stopped by a signal; everything is saved."  # if not


DIED = Outcome("died", error=f"Its process died {ATTEMPTS} times: killed, or out of memory?")
Outcomes = Generator[tuple[RunSpec, Outcome], None, None]


@dataclass(frozen=True)
class Place:
    """Where runs are executed and stored."""

    store: RunStore
    hardware: Hardware
    data_dir: Path | None = None


def attempt(spec: RunSpec, place: Place, emit: Listener, stop: StopRequest) -> Outcome:
    """Run a spec to its end, from its last checkpoint if any; a complete run is only read.

    Never raises: a failed run must not affect others.
    """

    def listen(event: Event) -> None:
        if isinstance(event, TrainingBegan) and event.epoch < event.epochs:
            emit(RunStarted(spec))
            emit(RunProgressed(spec, event.epoch, event.epochs, {}))
        elif isinstance(event, EpochDone):
            emit(RunProgressed(spec, event.epoch, spec.epochs, dict(event.record)))

    folder = place.store.folder(spec)
    try:
        stop.raise_if_asked()
        hardware, data_dir = place.hardware, place.data_dir
        scores = run(spec, folder, hardware=hardware, data_dir=data_dir, resume=True, emit=listen, stop=stop)
        return Outcome("finished", scores)
    except InUseError:
        time.sleep(TRY_AGAIN)
        return Outcome("in use")
    except Stopped:
        return Outcome("stopped")
    except Exception as error:
        return Outcome("failed", error=sentence(error))


def sentence(error: BaseException) -> str:
    """Describe an error: our own by the message alone, others with their type."""
    return str(error) if isinstance(error, MetacalError) else f"{type(error).__name__}: {error}"


class Engine(ABC):
    """Base class of the engines."""

    hardware = Hardware()

    def execute(
        self,
        specs: Sequence[RunSpec],
        store: RunStore,
        *,
        data_dir: Path | None = None,
        emit: Listener = silence,
        stop: StopRequest | None = None,
    ) -> dict[str, str]:
        """Complete as many runs as possible.

        A complete run is read, an unfinished one is resumed, and one that is locked by another process is tried again
        after the others.

        Args:
            specs: what to run, ignoring duplicates.
            store: the folder of runs.
            data_dir: folder of the datasets; see `metacal.lab.data.load_dataset`.
            emit: receives events, in this process, one at a time.
            stop: a request to stop all runs; by default SIGINT and SIGTERM.

        Returns:
            The errors of failed runs, by the hash of the spec.

        Raises:
            Stopped: a signal was received; the state of every run is saved.
        """
        failures: dict[str, str] = {}
        place, lock = Place(store, self.hardware, data_dir), threading.Lock()

        def tell(event: RunEvent) -> None:
            with lock:
                emit(event)

        def settle(spec: RunSpec, outcome: Outcome) -> None:
            if outcome.kind == "finished":
                tell(RunFinished(spec, outcome.scores))
            elif not (request and outcome.kind == "stopped"):
                failures[spec.hash] = outcome.error
                tell(RunFailed(spec, outcome.error))

        with StopRequest().listening() if stop is None else nullcontext(stop) as request:
            waiting: deque[RunSpec] = deque()
            for spec in {spec.hash: spec for spec in specs}.values():
                if store.folder(spec).is_complete:
                    settle(spec, attempt(spec, place, tell, request))
                else:
                    waiting.append(spec)
            if waiting:
                with closing(self.outcomes(waiting, place, tell, request)) as outcomes:
                    for spec, outcome in outcomes:
                        if outcome.kind == "in use":
                            waiting.append(spec)
                        else:
                            settle(spec, outcome)
                request.raise_if_asked()
        return failures

    @abstractmethod
    def outcomes(self, waiting: deque[RunSpec], place: Place, emit: Listener, stop: StopRequest) -> Outcomes:
        """Take runs from the queue until it is empty or a stop is requested, and yield the result of each attempt."""


class LocalEngine(Engine):
    """Executes runs on this machine.

    Args:
        jobs: number of concurrent runs. A single job runs in this process; several run in processes of their own,
            which share the cores and are spread over the GPUs.
        hardware: of each run.

    Examples:
        >>> import tempfile
        >>> from metacal.lab.training import build_spec
        >>> from metacal.lab.training.run_folder import RunStore
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

    def outcomes(self, waiting: deque[RunSpec], place: Place, emit: Listener, stop: StopRequest) -> Outcomes:
        """Execute runs one by one in this process, or several at a time in processes that threads wait for."""
        if self.jobs == 1:
            while waiting and not stop:
                spec = waiting.popleft()
                yield spec, attempt(spec, place, emit, stop)
            return
        threads = self.hardware.threads or max(1, len(os.sched_getaffinity(0)) // self.jobs)
        shared = replace(place, hardware=self.hardware.model_copy(update={"threads": threads}))
        gpus, slots, over = visible_gpus(self.hardware), SimpleQueue[str | None](), threading.Event()
        for number in range(self.jobs):
            slots.put(gpus[number % len(gpus)] if gpus else None)

        def watch(spec: RunSpec) -> Outcome:
            gpu, outcome = slots.get(), DIED
            try:
                for _ in range(ATTEMPTS):
                    if outcome is DIED:
                        outcome = attempt_in_process(spec, shared, gpu, emit, lambda: bool(stop) or over.is_set())
                return outcome
            finally:
                slots.put(gpu)

        running: dict[Future[Outcome], RunSpec] = {}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                while running or (waiting and not stop):
                    while waiting and not stop and len(running) < self.jobs:
                        spec = waiting.popleft()
                        running[pool.submit(watch, spec)] = spec
                    for future in wait(running, PAUSE, FIRST_COMPLETED).done:
                        yield running.pop(future), future.result()
            finally:
                over.set()


def attempt_in_process(
    spec: RunSpec, place: Place, gpu: str | None, emit: Listener, is_over: Callable[[], bool]
) -> Outcome:
    """Attempt a run in its own process, so that a crash does not affect other runs.

    The process is forked from a server that has only imported modules: it has no GPU context, threads or data. Events
    and then the outcome come through a pipe; closing the pipe asks the run to save and stop.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # The current environment: the fork server may be older than its last change.
    environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    line, theirs = context.Pipe()
    process = context.Process(target=_work, args=(spec, place, theirs, environment))
    process.start()
    theirs.close()
    try:
        while not is_over():
            message: RunEvent | Outcome | None = line.recv() if line.poll(PAUSE) else None
            if isinstance(message, Outcome):
                return message
            if message is not None:
                emit(message)
        return Outcome("stopped")
    except (EOFError, ConnectionResetError):
        return DIED
    finally:
        line.close()
        process.join()


def _work(spec: RunSpec, place: Place, line: Connection, environment: dict[str, str]) -> None:
    # Ctrl-C reaches every process of a terminal; here it is blocked, as runs are asked to stop through the pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    stop = StopRequest()

    def stop_at_end_of_pipe() -> None:
        with suppress(EOFError, OSError):
            line.recv()
        stop.signal = signal.SIGTERM

    def send(message: RunEvent | Outcome) -> None:
        with suppress(OSError):  # the parent is gone, and the run stops
            line.send(message)

    threading.Thread(target=stop_at_end_of_pipe, daemon=True).start()
    with stop.listening():
        send(attempt(spec, place, send, stop))


def visible_gpus(hardware: Hardware) -> list[str]:
    """Return the CUDA names of the GPUs that runs may use; none if not requested, or if a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]
