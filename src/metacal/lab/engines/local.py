"""What every engine does with runs (a queue of them, attempts, events that say how they go), and `LocalEngine`."""

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

from metacal.errors import InUseError, MetacalError
from metacal.functional.arguments import check_integer
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest, run
from metacal.lab.training.events import EpochDone, Event, TrainingBegan
from metacal.lab.training.run_folder import RunStore

TRY_AGAIN = 0.5
"""Seconds until a run that another process holds is tried again."""
ATTEMPTS = 2
"""A run whose process dies is tried this often."""
PAUSE = 0.1


@dataclass(frozen=True)
class RunStarted:
    """A run begins to train, or continues from its checkpoint."""

    spec: RunSpec


@dataclass(frozen=True)
class RunProgressed:
    """So many of its epochs are done; the figures are those of the last one (none when it has just started)."""

    spec: RunSpec
    epoch: int
    epochs: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class RunFinished:
    """A run is complete in the store, now or since before."""

    spec: RunSpec
    scores: Mapping[str, Any]


@dataclass(frozen=True)
class RunFailed:
    """A run cannot be completed; the others go on."""

    spec: RunSpec
    error: str


RunEvent = RunStarted | RunProgressed | RunFinished | RunFailed
Listener = Callable[[RunEvent], None]


def silence(event: RunEvent) -> None:
    """Listen to nothing."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended; a value that any engine can send."""

    kind: Literal["finished", "failed", "in use", "stopped", "died"]  # in use: another process holds the run
    scores: dict[str, Any] = field(default_factory=dict)  # if finished
    error: str = ""  # if failed or died
    signal: int | None = None  # if stopped


@dataclass(frozen=True)
class Place:
    """Where runs are executed and kept."""

    store: RunStore
    hardware: Hardware
    data_dir: Path | None = None


def attempt(spec: RunSpec, place: Place, emit: Listener, stop: StopRequest) -> Outcome:
    """Run a spec to its end, from its last checkpoint if there is one; the scores of a complete run are read.

    No error leaves this function: a run that fails must not take others with it.
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
        if not folder.is_complete:
            with folder.lock():  # before any data is loaded: a run that another process holds is put off at no cost
                pass
        where: dict[str, Any] = {"hardware": place.hardware, "data_dir": place.data_dir}
        return Outcome("finished", scores=run(spec, folder, **where, resume=True, emit=listen, stop=stop))
    except InUseError:
        return Outcome("in use")
    except Stopped as stopped:
        return Outcome("stopped", signal=stopped.signal)
    except Exception as error:
        return Outcome("failed", error=sentence(error))


class RunQueue:
    """Runs in the order given, each once; those that are complete in the store are settled at once."""

    def __init__(self, specs: Iterable[RunSpec], store: RunStore, emit: Listener) -> None:
        self.failures: dict[str, str] = {}  # what was wrong, by the hash of the spec
        self.emit = emit
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
        """Take note of an outcome; a run that another process holds goes to the back, to be tried again."""
        if outcome.kind == "finished":
            self.emit(RunFinished(spec, outcome.scores))
        elif outcome.kind == "in use":
            self._waiting.append((time.monotonic() + TRY_AGAIN, spec))
        else:
            error = outcome.error or "stopped by a signal; everything is saved."
            self.failures[spec.hash] = error
            self.emit(RunFailed(spec, error))


class Engine(ABC):
    """Executes runs somewhere."""

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
            if len(queue):
                self.complete(queue, Place(store, Hardware(), data_dir), request)
            return queue.failures

    @abstractmethod
    def complete(self, queue: RunQueue, place: Place, stop: StopRequest) -> None:
        """Execute until nothing is left, or until asked to stop."""


def sentence(error: BaseException) -> str:
    """An error in a line: our own speak for themselves, others are named.

    Examples:
        >>> sentence(KeyError("x"))
        "KeyError: 'x'"
    """
    return str(error) if isinstance(error, MetacalError) else f"{type(error).__name__}: {error}"


DIED = Outcome("died", error=f"Its process died {ATTEMPTS} times: killed, or out of memory?")


class LocalEngine(Engine):
    """Executes runs on this machine.

    Args:
        jobs: how many at a time. One runs in this process; more run in processes of their own, which share the cores
            (and take turns on the GPUs, if there are any).
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

    def complete(self, queue: RunQueue, place: Place, stop: StopRequest) -> None:
        """Execute one run after the other here, or several at a time in processes."""
        if self.jobs > 1:
            threads = self.hardware.threads or max(1, len(os.sched_getaffinity(0)) // self.jobs)
            shared = self.hardware.model_copy(update={"threads": threads})
            execute_in_processes(self.jobs, queue, replace(place, hardware=shared), stop)
            return
        while len(queue):
            spec = queue.take()
            stop.raise_if_asked()
            if spec is None:
                time.sleep(PAUSE)
                continue
            outcome = attempt(spec, replace(place, hardware=self.hardware), queue.emit, stop)
            if outcome.kind == "stopped":
                raise Stopped(outcome.signal)
            queue.settle(spec, outcome)


def execute_in_processes(jobs: int, queue: RunQueue, place: Place, stop: StopRequest) -> None:
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
            ready = connection.wait([process.line for process in running.values()], timeout=PAUSE)
            for slot, process in list(running.items()):
                told = process.receive() if process.line in ready else None
                if not isinstance(told, Outcome):
                    if told is not None:
                        queue.emit(told)
                    continue
                running.pop(slot).close()
                deaths[process.spec.hash] += told.kind == "died"
                if told.kind == "died" and (asked or deaths[process.spec.hash] < ATTEMPTS):
                    queue.put_back(process.spec)
                elif not (asked and told.kind == "stopped"):
                    queue.settle(process.spec, told)
        if asked or len(queue):
            raise Stopped(stop.signal)
    finally:
        for process in running.values():
            process.close()


class RunProcess:
    """A run in a process of its own: when it dies, no other run is touched.

    It is forked from a fresh process that has imported all it needs and nothing else: no GPU, no threads, no data.
    Events, then the outcome, come through a pipe. A word through it, or its end, asks for a stop.
    """

    def __init__(self, spec: RunSpec, place: Place, gpu: str | None) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.spec = spec
        self.line, theirs = context.Pipe()
        # The environment as it is now: the process that this one is forked from may be older.
        environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
        self.process = context.Process(target=work, args=(spec, place, theirs, environment))
        # Ctrl-C reaches every process of a terminal; runs are asked to stop by this one, and do not hear it themselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def ask_to_stop(self) -> None:
        """Ask the run to save and stop."""
        with suppress(OSError):
            self.line.send("stop")

    def receive(self) -> RunEvent | Outcome:
        """What it tells next."""
        try:
            told: RunEvent | Outcome = self.line.recv()
        except (EOFError, OSError):
            return DIED
        return told

    def close(self) -> None:
        """Wait for the process, whose run is saved if it is not over."""
        self.line.close()
        self.process.join()


def work(spec: RunSpec, place: Place, line: Connection, environment: dict[str, str]) -> None:
    """What the process of a run does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    stop = StopRequest()

    def obey() -> None:
        with suppress(EOFError, OSError):  # the process that started this one is gone
            line.recv()
        stop.signal = signal.SIGTERM

    def tell(what: RunEvent | Outcome) -> None:
        with suppress(OSError):  # nobody is there any more: the run is stopped
            line.send(what)

    threading.Thread(target=obey, daemon=True).start()
    with stop.listening():
        tell(attempt(spec, place, tell, stop))


def visible_gpus(hardware: Hardware) -> list[str]:
    """The GPUs that runs may use, as CUDA names them; none if they are not asked for, or a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]
