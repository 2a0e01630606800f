"""Draws of simulated data that are not there yet: fitted one after the other, until asked to stop."""

from collections.abc import Iterable

from metacal.runs.draw_store import DrawStore
from metacal.runs.paper import Draw
from metacal.simulated_study import fit_draw
from metacal.training import StopRequest


def fit_missing(draws: Iterable[Draw], store: DrawStore, stop: StopRequest) -> None:
    """Fit the study's models on every draw that the store does not have.

    Raises:
        Stopped: it was asked for; the draws before are kept.
    """
    for draw in draws:
        stop.raise_if_asked()
        if not store.has(draw):
            store.write(draw, fit_draw(*draw))
