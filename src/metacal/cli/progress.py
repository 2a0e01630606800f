"""Progress of a training in the terminal, and in TensorBoard; silent where nobody watches."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from metacal.errors import needs
from metacal.runs import RunFolder, RunSpec
from metacal.runs.processes import is_first_process
from metacal.training.events import BatchDone, EpochDone, Event, Listener, Notice, TrainingBegan

DRAW_EVERY = 0.1


class TrainingBar:
    """Draws a bar over all batches, with the figures of the last epoch beside it.

    Args:
        progress: where to draw.
        title: of the run.
    """

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress = progress
        self.task = progress.add_task(title, total=None, figures="")
        self.batches = self.epochs = 1
        self.figures = ""
        self._drawn = 0.0

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, TrainingBegan):
            self.batches, self.epochs = event.batches, event.epochs
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
            self.figures = epoch_line(event)
        elif isinstance(event, Notice):
            self.progress.console.print(event.text, style="yellow", highlight=False, markup=False)


def epoch_line(event: EpochDone) -> str:
    """An epoch's figures on one line."""
    record = event.record
    shown = [f"val error {record['val_error']:.2%}", f"ECE {record['val_ece']:.2%}", f"DECE {record['val_dece']:.2%}"]
    if "strength" in record:
        shown.append(f"mean smoothing {record['strength']:.4f}")
    return "  ".join(shown)


@contextmanager
def watching(spec: RunSpec, folder: RunFolder, *, tensorboard: bool = False) -> Iterator[Listener]:
    """A listener that draws on a terminal, tells notices anywhere, and writes TensorBoard events if asked to."""
    console = Console(stderr=True)
    is_drawn = console.is_terminal and is_first_process()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    progress = Progress(*columns, console=console) if is_drawn else None
    listeners: list[Listener] = [TrainingBar(progress, spec.title) if progress is not None else notices(console)]
    if tensorboard and is_first_process():
        listeners.append(tensorboard_writer(folder))
    with progress or nullcontext():
        yield lambda event: tell(listeners, event)


def tell(listeners: list[Listener], event: Event) -> None:
    """Pass an event on to everybody."""
    for listener in listeners:
        listener(event)


def notices(console: Console) -> Listener:
    """A listener that prints what the user should know, and nothing else."""

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            console.print(event.text, highlight=False, markup=False, soft_wrap=True)

    return listen


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
