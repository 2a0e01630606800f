"""Progress of many runs in the terminal: one bar over all of them, and the run that last said something."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from metacal.engines.events import Listener, RunEvent, RunFailed, RunFinished, RunProgressed


@contextmanager
def following(total: int) -> Iterator[Listener]:
    """A listener that draws on a terminal; elsewhere it prints a line for every run that ends."""
    console = Console(stderr=True)
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", markup=False),
    )
    progress = Progress(*columns, console=console) if console.is_terminal and total else None
    task = progress.add_task("runs", total=total, last="") if progress is not None else None

    def listen(event: RunEvent) -> None:
        if isinstance(event, (RunFinished, RunFailed)):
            line = outcome(event)
            if progress is not None and task is not None:
                progress.advance(task)
                progress.update(task, last=line)
            else:
                console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif isinstance(event, RunProgressed) and progress is not None and task is not None:
            progress.update(task, last=f"{event.spec.title}: epoch {event.epoch} of {event.epochs}")

    with progress or nullcontext():
        yield listen


def outcome(event: RunFinished | RunFailed) -> str:
    """How a run ended, on one line."""
    if isinstance(event, RunFailed):
        return f"{event.spec.title}: failed, {event.error}"
    test = event.scores["test"]
    return f"{event.spec.title}: error {1 - test['accuracy']:.2%}, ECE {test['ece']:.2%}"
