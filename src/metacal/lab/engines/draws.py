"""Draws of simulated data that are not there yet: fitted one after the other, until asked to stop."""

from collections.abc import Callable, Iterable

from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import Draw
from metacal.lab.paper.simulated_study import fit_draw
from metacal.lab.training import StopRequest


def fit_missing(
    draws: Iterable[Draw], store: DrawStore, stop: StopRequest, say: Callable[[str], None] = lambda text: None
) -> None:
    """Fit the study's models on every draw that the store does not have.

    Args:
        draws: which.
        store: where they are kept.
        stop: asks to stop.
        say: is told of each draw before it is fitted.

    Raises:
        Stopped: it was asked for; the draws before are kept.
    """
    missing = [draw for draw in draws if not store.has(draw)]
    for count, draw in enumerate(missing, start=1):
        stop.raise_if_asked()
        say(f"Simulated data: draw {count} of {len(missing)}, {2 * draw.size} labels")
        store.write(draw, fit_draw(*draw))
