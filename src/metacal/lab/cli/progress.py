"""Progress of a training, or of many runs: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from metacal.cli.terminal import Console
from metacal.lab.engines import Listener as RunListener
from metacal.lab.engines import RunEvent, RunFailed, RunFinished, RunStarted
from metacal.lab.training import RunSpec, Stopped, StopRequest
from metacal.lab.training.environment import is_first_process
from metacal.lab.training.events import BatchDone, EpochDone, Event, Listener, Notice, TrainingBegan, silence

STOPPED = "Stopped; what was done is kept. Run the same command to continue."
DRAW_EVERY = 0.1
SAY_EVERY = 30.0
"""Seconds without a line after which a long epoch, or many runs, say how far they are; a bar says it more often."""

Say = Callable[[str], None]
Bar = Callable[..., Any]
"""Rich's ``Progress.update`` of one task, which has a field ``figures``."""


class TrainingLog:
    """A line per epoch, and one now and then within an epoch that takes long; with a bar, the same beside the bar."""

    def __init__(self, say: Say, bar: Bar | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.say, self.bar, self.clock = say, bar, clock
        self.epochs = self.batches = 1
        self.done, self.figures = 0, ""
        self.began = self.last = clock()

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, TrainingBegan):
            self.epochs, self.batches, self.done = event.epochs, event.batches, event.batch
            if self.bar is not None:
                self.bar(total=event.epochs * event.batches, completed=event.epoch * event.batches + event.batch)
        elif isinstance(event, BatchDone):
            self.done += 1
            if self.bar is not None:
                self.bar(advance=1)
            if self.clock() - self.last >= (SAY_EVERY if self.bar is None else DRAW_EVERY):
                # Only then is the loss read: the host waits for the device.
                self._tell(event.epoch + 1, f"batch {self.done}/{self.batches}  loss {float(event.loss):.4f}")
        elif isinstance(event, EpochDone):
            self.done, self.figures = 0, figures_line(event.record)
            if self.bar is None:
                self._tell(event.epoch, f"loss {event.record['train_loss']:.4f}  {self.figures}")
        elif isinstance(event, Notice):
            self.say(event.text)

    def _tell(self, epoch: int, text: str) -> None:
        self.last = self.clock()
        text = f"epoch {epoch}/{self.epochs}  {text}"
        if self.bar is not None:
            self.bar(figures=f"{text}  {self.figures}")
        else:
            self.say(f"{text}  {self.last - self.began:.0f} s")


class RunsLog:
    """A line for each run that starts or ends, and now and then one for an epoch; with a bar, beside the bar."""

    def __init__(
        self, total: int, say: Say, bar: Bar | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.say, self.bar, self.clock = total, say, bar, clock
        self.done, self.last = 0, clock()

    def __call__(self, event: RunEvent) -> None:
        """Take in an event."""
        if isinstance(event, RunStarted):
            self._tell(f"{event.spec.title}: started")
        elif isinstance(event, (RunFinished, RunFailed)):
            self.done += 1
            self._tell(f"{self.done}/{self.total}  {outcome_line(event)}", advance=1)
        elif event.figures and self.clock() - self.last >= (SAY_EVERY if self.bar is None else DRAW_EVERY):
            self._tell(f"{event.spec.title}: epoch {event.epoch}/{event.epochs}  {figures_line(event.figures)}")

    def _tell(self, text: str, advance: int = 0) -> None:
        self.last = self.clock()
        if self.bar is not None:
            self.bar(figures=text, advance=advance)
        else:
            self.say(text)


def figures_line(record: Mapping[str, float]) -> str:
    """An epoch's figures on one line."""
    shown = [f"val error {record['val_error']:.2%}", f"ECE {record['val_ece']:.2%}", f"DECE {record['val_dece']:.2%}"]
    if "strength" in record:
        shown.append(f"mean strength {record['strength']:.4f}")
    return "  ".join(shown)


def outcome_line(event: RunFinished | RunFailed) -> str:
    """How a run ended, on one line."""
    if isinstance(event, RunFailed):
        return f"{event.spec.title}: failed, {event.error}"
    test = event.scores["test"]
    return f"{event.spec.title}: error {1 - test['accuracy']:.2%}, ECE {test['ece']:.2%}"


@contextmanager
def exit_when_stopped(message: str = STOPPED) -> Iterator[StopRequest]:
    """Take signals as requests to stop: runs save, and the command says so and exits."""
    try:
        with StopRequest().listening() as stop:
            yield stop
    except Stopped as stopped:
        if is_first_process():
            Console(stderr=True).say(message)
        raise typer.Exit(128 + stopped.signal) from None


@contextmanager
def watch_training(spec: RunSpec) -> Iterator[Listener]:
    """A listener to a training; of several processes, only the first one prints."""
    if is_first_process():
        with watch(spec.title) as (say, bar):
            yield TrainingLog(say, bar)
    else:
        yield silence


@contextmanager
def watch_runs(total: int) -> Iterator[RunListener]:
    """A listener to an engine's runs."""
    with watch("runs", total) as (say, bar):
        yield RunsLog(total, say, bar)


@contextmanager
def watch(title: str, total: int | None = None) -> Iterator[tuple[Say, Bar | None]]:
    """How to print a line and, on a terminal where there is something to do, how to draw a bar."""
    console = Console(stderr=True)
    if not console.is_terminal or total == 0:
        yield lines(console), None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[figures]}", markup=False))
    with Progress(*columns, *times, console=console) as progress:
        task = progress.add_task(title, total=total, figures="")
        yield lines(console), partial(progress.update, task)


@contextmanager
def watch_steps() -> Iterator[Say]:
    """Says what is being done: beside a spinner on a terminal, a line for each step elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lines(console)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=text)


def lines(console: Console) -> Say:
    """Prints lines as they are, each at once."""
    return partial(console.print, highlight=False, markup=False, soft_wrap=True)
