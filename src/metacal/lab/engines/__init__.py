"""Engines that execute runs: in processes of this machine (`LocalEngine`), or on a Ray cluster (`RayEngine`).

An engine takes specs and a store, leaves complete runs in the store, and returns which runs failed. It prints nothing:
a listener receives its events.
"""

from metacal.lab.engines.local import (
    Listener,
    LocalEngine,
    RunEvent,
    RunFailed,
    RunFinished,
    RunProgressed,
    RunStarted,
)
from metacal.lab.engines.ray import RayEngine

__all__ = [
    "Listener",
    "LocalEngine",
    "RayEngine",
    "RunEvent",
    "RunFailed",
    "RunFinished",
    "RunProgressed",
    "RunStarted",
]
