"""Draws of simulated data: each fitted once, and none after a request to stop."""

import signal

import pytest

from metacal.lab.engines import draws
from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import Draw
from metacal.lab.training import Stopped, StopRequest


def test_what_is_missing_is_fitted_until_asked_to_stop(monkeypatch, tmp_path):
    stop, store, fitted = StopRequest(), DrawStore(tmp_path), []
    wanted = [Draw(20, seed, 100) for seed in range(4)]
    store.write(wanted[0], {"size": 20, "methods": {}, "points": []})

    def fit(size, seed, test_points):
        fitted.append(seed)
        stop.signal = signal.SIGTERM if seed == 2 else None
        return {"size": size, "methods": {}, "points": []}

    monkeypatch.setattr(draws, "fit_draw", fit)
    with pytest.raises(Stopped):
        draws.fit_missing(wanted, store, stop)
    assert fitted == [1, 2] and store.has(wanted[2]) and not store.has(wanted[3])
