"""Being asked to stop: a signal is remembered, the step in progress is finished, and the loop saves and leaves."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether, and by which signal, the loop was asked to stop."""

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

        def remember(number: int, frame: FrameType | None) -> None:
            self.signal = number
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in SIGNALS:
            signal.signal(number, remember)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Stopped(Exception):  # noqa: N818 - not an error: what was asked for
    """Training was asked to stop, and stopped with everything saved.

    Args:
        signal_number: by which signal; None, where another process was asked, stands for SIGTERM.
    """

    def __init__(self, signal_number: int | None) -> None:
        self.signal = int(signal.SIGTERM if signal_number is None else signal_number)
        super().__init__(f"stopped by {signal.Signals(self.signal).name}; everything is saved")
