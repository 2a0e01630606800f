"""Timing side by side: variants take turns, so that a busy moment of the machine hits all of them alike."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PATIENCE = 15.0
"""Seconds that one variant may use in all before it takes no further turns (it always gets one)."""


@dataclass(frozen=True)
class Timing:
    """The best of a variant's turns.

    Attributes:
        seconds: the shortest turn.
        rounds: turns taken.
        value: what the last turn returned.
    """

    seconds: float
    rounds: int
    value: float


def interleave(
    variants: Mapping[str, Callable[[], float]], rounds: int, patience: float = PATIENCE
) -> dict[str, Timing]:
    """Time variants round-robin in this process and keep each one's best turn.

    Args:
        variants: what to call, by name.
        rounds: turns of each.
        patience: a variant that has used this many seconds drops out of the following rounds.
    """
    best = dict.fromkeys(variants, float("inf"))
    used = dict.fromkeys(variants, 0.0)
    turns = dict.fromkeys(variants, 0)
    values = dict.fromkeys(variants, float("nan"))
    for _ in range(rounds):
        for name, variant in variants.items():
            if used[name] > patience:
                continue
            start = time.perf_counter()
            values[name] = variant()
            seconds = time.perf_counter() - start
            best[name], used[name] = min(best[name], seconds), used[name] + seconds
            turns[name] += 1
    return {name: Timing(best[name], turns[name], values[name]) for name in variants}


def interleave_runs(
    runs: Mapping[str, Callable[[], Callable[[], object]]], length: int, rounds: int, block: int
) -> dict[str, float]:
    """Mean seconds a call over whole runs, where some calls cost more than others.

    Args:
        runs: begin a run and give what to call, by name.
        length: calls of a run, a multiple of ``block``.
        rounds: how often each is run; of each of its blocks the best counts.
        block: calls until the next run takes its turn.
    """
    best = {name: [float("inf")] * (length // block) for name in runs}
    for _ in range(rounds):
        begun = {name: begin() for name, begin in runs.items()}
        for place in range(length // block):
            for name, call in begun.items():
                start = time.perf_counter()
                for _ in range(block):
                    call()
                best[name][place] = min(best[name][place], time.perf_counter() - start)
    return {name: sum(seconds) / length for name, seconds in best.items()}


class OthersMeter:
    """How much of the machine other processes have used since this was made.

    Threads that wait for one another are held up by a busy core out of proportion, so a figure measured while others
    were at work is not to be trusted, even as a ratio.
    """

    def __init__(self) -> None:
        self.before = _seconds()

    def share(self) -> float:
        """Share of all cores' time; NaN where the system does not tell."""
        total, busy, own = (now - then for now, then in zip(_seconds(), self.before, strict=True))
        return max(busy - own, 0.0) / total if total else float("nan")


def wait_for_quiet(most_seconds: float, share: float, window: float = 5.0) -> None:
    """Return once other processes have used less than ``share`` of the machine for a while, or time is up."""
    end = time.monotonic() + most_seconds
    while time.monotonic() < end:
        meter = OthersMeter()
        time.sleep(window)
        if not meter.share() > share:
            return


def _seconds() -> tuple[float, float, float]:
    """Processor seconds so far over all cores: in all, in use, and in use by this process and its children."""
    own = sum(os.times()[:4])
    try:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return 0.0, 0.0, own
    total, idle = (count / os.sysconf("SC_CLK_TCK") for count in (sum(ticks), ticks[3] + ticks[4]))
    return total, total - idle, own
