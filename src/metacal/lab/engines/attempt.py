"""One attempt at one run, wherever it is executed; what came of it is a value that any engine can carry."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from metacal.errors import InUseError, MetacalError
from metacal.lab.engines.events import Listener, RunProgressed, RunStarted
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest, run
from metacal.lab.training.events import EpochDone, Event, TrainingBegan
from metacal.lab.training.events import Listener as TrainingListener
from metacal.lab.training.run_folder import RunStore


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt.

    Attributes:
        kind: ``in use`` if another process holds the run.
        scores: if finished.
        error: if failed.
        signal: if stopped.
    """

    kind: Literal["finished", "failed", "in use", "stopped"]
    scores: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    signal: int | None = None


def attempt(
    spec: RunSpec,
    store: RunStore,
    *,
    hardware: Hardware | None,
    data_dir: Path | None,
    emit: Listener,
    stop: StopRequest,
) -> Outcome:
    """Run a spec to its end, from its last checkpoint if there is one; a complete run is read.

    No error leaves this function: a run that fails must not take others with it.
    """
    listener = told_of_epochs(spec, emit)
    try:
        stop.raise_if_asked()
        scores = complete(spec, store, hardware, data_dir, listener, stop)
        return Outcome("finished", scores=scores)
    except InUseError:
        return Outcome("in use")
    except Stopped as stopped:
        return Outcome("stopped", signal=stopped.signal)
    except Exception as error:
        return Outcome("failed", error=sentence(error))


def complete(
    spec: RunSpec,
    store: RunStore,
    hardware: Hardware | None,
    data_dir: Path | None,
    emit: TrainingListener,
    stop: StopRequest,
) -> dict[str, Any]:
    """The scores of a run, which is made if need be."""
    folder = store.folder(spec)
    if not folder.is_complete:
        with folder.lock():  # before any data is loaded: a run that another process holds is put off at no cost
            pass
    return run(spec, folder, hardware=hardware, data_dir=data_dir, resume=True, emit=emit, stop=stop)


def told_of_epochs(spec: RunSpec, emit: Listener) -> TrainingListener:
    """A listener to the training loop that tells an engine's listener of the start and of every epoch."""

    def tell(event: Event) -> None:
        if isinstance(event, TrainingBegan) and event.epoch < event.epochs:
            emit(RunStarted(spec))
            emit(RunProgressed(spec, event.epoch, event.epochs, {}))
        elif isinstance(event, EpochDone):
            emit(RunProgressed(spec, event.epoch, spec.epochs, dict(event.record)))

    return tell


def sentence(error: BaseException) -> str:
    """An error in a line: our own speak for themselves, others are named.

    Examples:
        >>> sentence(KeyError("x"))
        "KeyError: 'x'"
    """
    return str(error) if isinstance(error, MetacalError) else f"{type(error).__name__}: {error}"
