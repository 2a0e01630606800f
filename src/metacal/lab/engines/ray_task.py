"""What runs on the machines of a Ray cluster: a run, and the mailbox between it and the driver."""

import platform
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from metacal.lab.engines.attempt import Outcome, attempt
from metacal.lab.engines.events import RunEvent
from metacal.lab.training import Hardware, RunSpec, StopRequest
from metacal.lab.training.run_folder import RunStore

ASK_EVERY = 1.0
"""Seconds from one time that a run asks whether it should stop to the next."""


class Mailbox:
    """An actor that holds events until the driver takes them, and the driver's request to stop."""

    def __init__(self) -> None:
        self._events: list[RunEvent] = []
        self._signal: int | None = None

    def put(self, event: RunEvent) -> None:
        """Leave an event."""
        self._events.append(event)

    def drain(self) -> list[RunEvent]:
        """Take all events."""
        events, self._events = self._events, []
        return events

    def ask_to_stop(self, signal: int) -> None:
        """Ask all runs to save and stop."""
        self._signal = signal

    def asked_to_stop(self) -> int | None:
        """The signal by which runs were asked to stop, if they were."""
        return self._signal


def execute_task(
    spec: RunSpec, store: RunStore, mark: Path, hardware: Hardware, data_dir: Path | None, mailbox: Any
) -> Outcome:
    """Run a spec into the store, if the mark in it is there."""
    import ray

    if not mark.exists():
        where = f"{mark.parent} on {platform.node()}"
        return Outcome("failed", error=f"The store must be a path that all machines share, got another one: {where}.")
    stop, done = StopRequest(), threading.Event()
    told: list[Any] = []

    def tell(event: RunEvent) -> None:
        told[:] = [mailbox.put.remote(event)]

    def ask(seconds: float) -> None:
        with suppress(ray.exceptions.RayError):
            asked: int | None = ray.get(mailbox.asked_to_stop.remote(), timeout=seconds)
            if asked is not None:  # a mailbox that was lost and restarted has forgotten what it said before
                stop.signal = asked

    def keep_asking() -> None:
        while not done.wait(ASK_EVERY):
            ask(30.0)

    ask(5.0)
    asking = threading.Thread(target=keep_asking, daemon=True)
    asking.start()
    try:
        outcome = attempt(spec, store, hardware=hardware, data_dir=data_dir, emit=tell, stop=stop)
    finally:
        done.set()
        asking.join(timeout=5.0)
    with suppress(ray.exceptions.RayError):  # so that the driver hears of the last epoch before it hears of the end
        ray.get(told, timeout=30.0)
    return outcome
