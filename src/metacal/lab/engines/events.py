"""What an engine tells whoever listens; it prints nothing itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from metacal.lab.training import RunSpec


@dataclass(frozen=True)
class RunStarted:
    """A run begins to train, or goes on from its checkpoint."""

    spec: RunSpec


@dataclass(frozen=True)
class RunProgressed:
    """So many of its epochs are done; the figures are those of the last one (none when it has just started)."""

    spec: RunSpec
    epoch: int
    epochs: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class RunFinished:
    """A run is complete in the store, now or since before."""

    spec: RunSpec
    scores: Mapping[str, Any]


@dataclass(frozen=True)
class RunFailed:
    """A run cannot be completed; the others go on."""

    spec: RunSpec
    error: str


RunEvent = RunStarted | RunProgressed | RunFinished | RunFailed
Listener = Callable[[RunEvent], None]


def silence(event: RunEvent) -> None:
    """Listen to nothing."""
