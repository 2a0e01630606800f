"""What the loop tells whoever listens; it prints nothing itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor


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
    """Something the user should know: a damaged checkpoint was passed over, training stopped early."""

    text: str


Event = TrainingBegan | BatchDone | EpochDone | CheckpointSaved | Notice
Listener = Callable[[Event], None]


def silence(event: Event) -> None:
    """Listen to nothing."""
