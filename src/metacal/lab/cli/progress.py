"""Progress of a training, or of many runs: bars on a terminal, plain lines elsewhere, and TensorBoard if asked."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial

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
from metacal.errors import needs
from metacal.lab.engines import Listener as RunListener
from metacal.lab.engines import RunEvent, RunFailed, RunFinished, RunProgressed, RunStarted
from metacal.lab.training import RunFolder, RunSpec, Stopped, StopRequest
from metacal.lab.training.environment import is_first_process
from metacal.lab.training.events import BatchDone, EpochDone, Event, Listener, Notice, TrainingBegan, silence

DRAW_EVERY = 0.1
STOPPED = "Stopped; what was done is kept. Run the same command to continue."
SAY_EVERY = 30.0
"""Seconds without a line after which a long epoch, or many runs, say how far they are."""

Say = Callable[[str], None]
Clock = Callable[[], float]


class TrainingBar:
    """Draws a bar over all batches, with the figures of the last epoch beside it."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress = progress
        self.task = progress.add_task(title, total=None, figures="")
        self.epochs = 1
        self.figures = ""
        self._drawn = 0.0

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, TrainingBegan):
            self.epochs = event.epochs
            done = event.epoch * event.batches + event.batch
            self.progress.update(self.task, total=event.epochs * event.batches, completed=done)
        elif isinstance(event, BatchDone):
            self.progress.advance(self.task)
            now = self.progress.get_time()
            if now - self._drawn > DRAW_EVERY:  # reading a loss makes the host wait for the device: not for every batch
                self._drawn = now
                loss = f"epoch {event.epoch + 1}/{self.epochs}  loss {float(event.loss):.4f}"
                self.progress.update(self.task, figures=f"{loss}  {self.figures}")
        elif isinstance(event, EpochDone):
            self.figures = figures_line(event.record)
        elif isinstance(event, Notice):
            self.progress.console.print(event.text, style="yellow", highlight=False, markup=False)


class TrainingLog:
    """Prints a line per epoch, and one now and then within an epoch that takes long."""

    def __init__(self, say: Say, clock: Clock = time.monotonic) -> None:
        self.say, self.clock = say, clock
        self.epochs = self.batches = 1
        self.done = 0
        self.began = self.last = clock()

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, TrainingBegan):
            self.epochs, self.batches, self.done = event.epochs, event.batches, event.batch
        elif isinstance(event, BatchDone):
            self.done += 1
            if self.clock() - self.last >= SAY_EVERY:  # and only then is the loss read: the host waits for the device
                self._line(event.epoch + 1, f"batch {self.done}/{self.batches}  loss {float(event.loss):.4f}")
        elif isinstance(event, EpochDone):
            self.done = 0
            self._line(event.epoch, f"loss {event.record['train_loss']:.4f}  {figures_line(event.record)}")
        elif isinstance(event, Notice):
            self.say(event.text)

    def _line(self, epoch: int, text: str) -> None:
        self.last = self.clock()
        self.say(f"epoch {epoch}/{self.epochs}  {text}  {self.last - self.began:.0f} s")


class RunsLog:
    """Prints a line for each run that starts or ends, and now and then one for an epoch."""

    def __init__(self, total: int, say: Say, clock: Clock = time.monotonic) -> None:
        self.total, self.say, self.clock = total, say, clock
        self.done, self.last = 0, clock()

    def __call__(self, event: RunEvent) -> None:
        """Take in an event."""
        if isinstance(event, RunStarted):
            self._line(f"{event.spec.title}: started")
        elif isinstance(event, (RunFinished, RunFailed)):
            self.done += 1
            self._line(f"{self.done}/{self.total}  {outcome_line(event)}")
        elif event.figures and self.clock() - self.last >= SAY_EVERY:
            self._line(f"{event.spec.title}: epoch {event.epoch}/{event.epochs}  {figures_line(event.figures)}")

    def _line(self, text: str) -> None:
        self.last = self.clock()
        self.say(text)


def figures_line(record: Mapping[str, float]) -> str:
    """An epoch's figures on one line."""
    shown = [f"val error {record['val_error']:.2%}", f"ECE {record['val_ece']:.2%}", f"DECE {record['val_dece']:.2%}"]
    if "strength" in record:
        shown.append(f"mean smoothing {record['strength']:.4f}")
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
def watch_training(spec: RunSpec, folder: RunFolder, *, tensorboard: bool = False) -> Iterator[Listener]:
    """A listener to a training; of several processes, only the first one prints."""
    if not is_first_process():
        yield silence
        return
    console = Console(stderr=True)
    progress = bar(console) if console.is_terminal else None
    listeners: list[Listener] = [TrainingLog(lines(console)) if progress is None else TrainingBar(progress, spec.title)]
    if tensorboard:
        listeners.append(tensorboard_writer(folder))

    def listen(event: Event) -> None:
        for listener in listeners:
            listener(event)

    with progress or nullcontext():
        yield listen


@contextmanager
def watch_runs(total: int) -> Iterator[RunListener]:
    """A listener to an engine's runs."""
    console = Console(stderr=True)
    if not console.is_terminal or not total:
        yield RunsLog(total, lines(console))
        return
    with bar(console) as progress:
        task = progress.add_task("runs", total=total, figures="")

        def listen(event: RunEvent) -> None:
            if isinstance(event, (RunFinished, RunFailed)):
                progress.advance(task)
                progress.update(task, figures=outcome_line(event))
            elif isinstance(event, RunProgressed):
                progress.update(task, figures=f"{event.spec.title}: epoch {event.epoch} of {event.epochs}")

        yield listen


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


def bar(console: Console) -> Progress:
    """A bar with what it is of on its left, and figures on its right."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=console,
    )


def lines(console: Console) -> Say:
    """Prints lines as they are, each at once."""
    return partial(console.print, highlight=False, markup=False, soft_wrap=True)


def tensorboard_writer(folder: RunFolder) -> Listener:
    """A listener that writes each epoch's figures as TensorBoard events into the run's folder."""
    with needs("tensorboard"):
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        logger = TensorBoardLogger(root_dir=folder.path, name="tensorboard", version="")

    def listen(event: Event) -> None:
        if isinstance(event, EpochDone):
            logger.log_metrics(dict(event.record), step=event.epoch)
            logger.save()

    return listen
