"""Events that the training loop sends to its listener, and requests to stop."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from torch import Tensor

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class TrainingBegan:
    """Training starts or resumes at this epoch and batch, counted from 0."""

    epochs: int
    batches: int
    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchDone:
    """One step was taken. The loss is on the device; reading it synchronises the device."""

    epoch: int
    batch: int
    loss: Tensor


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended (numbered from 1): figures by name, and tensors to store."""

    epoch: int
    record: Mapping[str, float]
    tensors: Mapping[str, Tensor]
    is_best: bool


@dataclass(frozen=True)
class CheckpointSaved:
    """The state is on disk, after ``epoch`` whole epochs and ``batch`` batches."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Notice:
    """Something the user should know: a damaged checkpoint was skipped, training stopped early."""

    text: str


Event = TrainingBegan | BatchDone | EpochDone | CheckpointSaved | Notice
Listener = Callable[[Event], None]


def silence(event: object) -> None:
    """Ignore all events."""


class StopRequest:
    """A request to stop by a signal: the loop finishes its step, saves and exits."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def raise_if_asked(self) -> None:
        """Raise `Stopped` if a stop was requested."""
        if self:
            raise Stopped(self.signal)

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Treat SIGINT and SIGTERM as requests; a second signal acts at once."""
        is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
        before = {number: signal.getsignal(number) for number in SIGNALS if is_main}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def remember(number: int, frame: FrameType | None) -> None:
            self.signal = number
            restore()

        for number in before:
            signal.signal(number, remember)
        try:
            yield self
        finally:
            restore()


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """Training stopped on request, with everything saved.

    Args:
        signal_number: the signal that this process received; None, if another one did, counts as SIGTERM.
    """

    def __init__(self, signal_number: int | None) -> None:
        self.signal = int(signal.SIGTERM if signal_number is None else signal_number)
        super().__init__(f"stopped by {signal.Signals(self.signal).name}; everything is saved")
