"""What the loop tells its listener (events; it prints nothing), and how it is asked to stop."""

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
    """The first batch is about to be run; ``epoch`` and ``batch`` are where (0 and 0, unless resumed)."""

    epochs: int
    batches: int
    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchDone:
    """One step was taken. The loss is on the device: reading it makes the host wait."""

    epoch: int
    batch: int
    loss: Tensor


@dataclass(frozen=True)
class EpochDone:
    """An epoch is over (numbered from 1): figures by name, and the tensors worth keeping of it."""

    epoch: int
    record: Mapping[str, float]
    tensors: Mapping[str, Tensor]
    is_best: bool


@dataclass(frozen=True)
class CheckpointSaved:
    """The state is on disk: ``epoch`` whole epochs and ``batch`` batches are in it."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Notice:
    """Something the user should know: a damaged checkpoint was skipped, training stopped early."""

    text: str


Event = TrainingBegan | BatchDone | EpochDone | CheckpointSaved | Notice
Listener = Callable[[Event], None]


def silence(event: Event) -> None:
    """Listen to nothing."""


class StopRequest:
    """Whether, and by which signal, the loop was asked to stop: it finishes its step, saves and leaves."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def raise_if_asked(self) -> None:
        """Raise `Stopped` if it was."""
        if self:
            raise Stopped(self.signal)

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Take SIGINT and SIGTERM as requests; the second one acts at once, as it would have without us."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def remember(number: int, frame: FrameType | None) -> None:
            self.signal = number
            restore()

        for number in SIGNALS:
            signal.signal(number, remember)
        try:
            yield self
        finally:
            restore()


class Stopped(Exception):  # noqa: N818 - not an error: what was asked for
    """Training was asked to stop, and stopped with everything saved.

    Args:
        signal_number: by which signal; None, where another process was asked, stands for SIGTERM.
    """

    def __init__(self, signal_number: int | None) -> None:
        self.signal = int(signal.SIGTERM if signal_number is None else signal_number)
        super().__init__(f"stopped by {signal.Signals(self.signal).name}; everything is saved")
