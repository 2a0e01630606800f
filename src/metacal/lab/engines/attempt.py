"""What every engine does with runs: a queue of them, attempts at them, and events that say how they go."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from metacal.errors import InUseError, MetacalError
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest, run
from metacal.lab.training.events import EpochDone, Event, TrainingBegan
from metacal.lab.training.run_folder import RunStore

TRY_AGAIN = 0.5
"""Seconds until a run that another process holds is tried again."""


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
