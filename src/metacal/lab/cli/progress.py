"""Progress of one or many training runs: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from metacal.cli.terminal import Console
from metacal.lab.engines import Listener as RunListener
from metacal.lab.engines import RunEvent, RunFailed, RunFinished, RunStarted
from metacal.lab.training import RunSpec, Stopped, StopRequest
from metacal.lab.training.environment import is_first_process
from metacal.lab.training.events import BatchDone, EpochDone, Event, Listener, Notice, TrainingBegan, silence

STOPPED = "Stopped; all results are saved. Run the same command to continue."
DRAW_EVERY = 0.1
SAY_EVERY = 30.0
"""Seconds between lines within a long epoch, or among many runs; a bar is updated more often."""

Say = Callable[[str], None]
Bar = Callable[..., Any]
"""Rich's ``Progress.update`` of one task, which has a field ``figures``."""


class Log:
    """Prints lines, or shows them next to a progress bar."""

    def __init__(self, say: Say, bar: Bar | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.say, self.bar, self.clock = say, bar, clock
        self.began = self.last = clock()

    def is_due(self) -> bool:
        """Whether enough time has passed for another line."""
        return self.clock() - self.last >= (SAY_EVERY if self.bar is None else DRAW_EVERY)

    def tell(self, line: str, beside: str | None = None, advance: int = 0) -> None:
        """Print a line, or show it (or ``beside``) next to the bar."""
        self.last = self.clock()
        if self.bar is None:
            self.say(line)
        else:
            self.bar(figures=line if beside is None else beside, advance=advance)


class TrainingLog(Log):
    """A line per epoch, and some within a long epoch."""

    epochs, batches, done, figures = 1, 1, 0, ""

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        if isinstance(event, TrainingBegan):
            self.epochs, self.batches, self.done = event.epochs, event.batches, event.batch
            if self.bar is not None:
                self.bar(total=event.epochs * event.batches, completed=event.epoch * event.batches + event.batch)
        elif isinstance(event, BatchDone):
            self.done += 1
            if self.bar is not None:
                self.bar(advance=1)
            if self.is_due():  # reading the loss synchronises the device
                self._tell(event.epoch + 1, f"batch {self.done}/{self.batches}  loss {float(event.loss):.4f}")
        elif isinstance(event, EpochDone):
            self.done, self.figures = 0, figures_line(event.record)
            if self.bar is None:
                self._tell(event.epoch, f"loss {event.record['train_loss']:.4f}  {self.figures}")
        elif isinstance(event, Notice):
            self.say(event.text)

    def _tell(self, epoch: int, text: str) -> None:
        text = f"epoch {epoch}/{self.epochs}  {text}"
        self.tell(f"{text}  {self.clock() - self.began:.0f} s", beside=f"{text}  {self.figures}")


class RunsLog(Log):
    """A line for each run that starts or ends, and some for epochs."""

    def __init__(
        self, total: int, say: Say, bar: Bar | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(say, bar, clock)
        self.total, self.done = total, 0

    def __call__(self, event: RunEvent) -> None:
        """Handle an event."""
        title = event.spec.title
        if isinstance(event, RunStarted):
            self.tell(f"{title}: started")
        elif isinstance(event, RunFinished | RunFailed):
            self.done += 1
            if isinstance(event, RunFailed):
                outcome = f"failed, {event.error}"
            else:
                test = event.scores["test"]
                outcome = f"error {1 - test['accuracy']:.2%}, ECE {test['ece']:.2%}"
            self.tell(f"{self.done}/{self.total}  {title}: {outcome}", advance=1)
        elif event.figures and self.is_due():
            self.tell(f"{title}: epoch {event.epoch}/{event.epochs}  {figures_line(event.figures)}")


def figures_line(record: Mapping[str, float]) -> str:
    """Return the figures of an epoch as one line."""
    shown = [f"val error {record['val_error']:.2%}", f"ECE {record['val_ece']:.2%}", f"DECE {record['val_dece']:.2%}"]
    if "strength" in record:
        shown.append(f"mean strength {record['strength']:.4f}")
    return "  ".join(shown)


@contextmanager
def exit_when_stopped(message: str = STOPPED) -> Iterator[StopRequest]:
    """Treat signals as requests to stop: runs save their state, and the command prints a message and exits."""
    try:
        with StopRequest().listening() as stop:
            yield stop
    except Stopped as stopped:
        if is_first_process():
            Console(stderr=True).say(message)
        raise typer.Exit(128 + stopped.signal) from None


@contextmanager
def watch_training(spec: RunSpec) -> Iterator[Listener]:
    """Yield a listener for a training run; of several processes, only the first prints."""
    if is_first_process():
        with watch(spec.title) as (say, bar):
            yield TrainingLog(say, bar)
    else:
        yield silence


@contextmanager
def watch_runs(total: int) -> Iterator[RunListener]:
    """Yield a listener for the runs of an engine."""
    with watch("runs", total) as (say, bar):
        yield RunsLog(total, say, bar)


@contextmanager
def watch(title: str, total: int | None = None) -> Iterator[tuple[Say, Bar | None]]:
    """Yield a function that prints a line and, on a terminal with work to do, a progress bar."""
    console = Console(stderr=True)
    if not console.is_terminal or total == 0:
        yield console.say, None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[figures]}", markup=False))
    with Progress(*columns, *times, console=console) as progress:
        yield console.say, partial(progress.update, progress.add_task(title, total=total, figures=""))
