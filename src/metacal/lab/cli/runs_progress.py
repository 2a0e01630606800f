"""Progress of many runs: one bar over all of them on a terminal; elsewhere a line for each that starts or ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from metacal.cli.terminal import Console
from metacal.lab.cli.progress import SAY_EVERY, Say, figures_line, lines
from metacal.lab.engines.events import Listener, RunEvent, RunFailed, RunFinished, RunProgressed, RunStarted


@contextmanager
def following(total: int) -> Iterator[Listener]:
    """A listener that draws on a terminal, and prints lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal or not total:
        yield RunsLog(total, lines(console))
        return
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", markup=False),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("runs", total=total, last="")

        def listen(event: RunEvent) -> None:
            if isinstance(event, (RunFinished, RunFailed)):
                progress.advance(task)
                progress.update(task, last=outcome(event))
            elif isinstance(event, RunProgressed):
                progress.update(task, last=f"{event.spec.title}: epoch {event.epoch} of {event.epochs}")

        yield listen


class RunsLog:
    """Prints a line for each run that starts or ends, and now and then one for an epoch.

    Args:
        total: how many runs there are.
        say: prints a line.
        clock: the time in seconds.
    """

    def __init__(self, total: int, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.say, self.clock = total, say, clock
        self.done, self.last = 0, clock()

    def __call__(self, event: RunEvent) -> None:
        """Take in an event."""
        if isinstance(event, RunStarted):
            self._line(f"{event.spec.title}: started")
        elif isinstance(event, (RunFinished, RunFailed)):
            self.done += 1
            self._line(f"{self.done}/{self.total}  {outcome(event)}")
        elif event.figures and self.clock() - self.last >= SAY_EVERY:
            self._line(f"{event.spec.title}: epoch {event.epoch}/{event.epochs}  {figures_line(event.figures)}")

    def _line(self, text: str) -> None:
        self.last = self.clock()
        self.say(text)


def outcome(event: RunFinished | RunFailed) -> str:
    """How a run ended, on one line."""
    if isinstance(event, RunFailed):
        return f"{event.spec.title}: failed, {event.error}"
    test = event.scores["test"]
    return f"{event.spec.title}: error {1 - test['accuracy']:.2%}, ECE {test['ece']:.2%}"
