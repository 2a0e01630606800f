"""``metacal demo``, shortened: its lines, its pages, its JSON, and what it recommends."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from metacal.cli import demo
from metacal.cli.app import app
from metacal.errors import InvalidValueError


def test_lines_pages_and_json(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SEEDS", range(2))
    monkeypatch.setattr(demo, "EPOCHS", 4)
    figures = tmp_path / "figures.json"
    found = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "out"), "--json", str(figures)])
    assert found.exit_code == 0, found.output
    for line in (
        "as-trained.npz: accuracy 91.1 %, ECE 5.47 % (4.78 to 6.01), NLL 0.3840",
        "calibrated's ECE is lower by 5.00 points",
        "Seed 2 of 2, test NLL: cross-entropy ",
        "Predictions: use the calibrated file.",
        "Training: use ",
    ):
        assert line in found.output
    for page in ("predictions.html", "training.html"):
        assert page in found.output
        assert (tmp_path / "out" / page).read_text().startswith("<!doctype html>")
    written = json.loads(figures.read_text())
    methods = [demo.PLAIN, demo.SCALED, demo.SMOOTHED, demo.META]
    assert [run["method"] for run in written["training"]] == 2 * methods
    plain, scaled, *_ = written["training"]
    assert plain["error"] == scaled["error"] and plain["nll"] != scaled["nll"]
    with np.load(tmp_path / "out" / "calibrated.npz") as stored:
        assert stored["probs"].shape == (8000, 10) and stored["targets"].shape == (8000,)


def runs_with(**nll):
    """Runs of three seeds whose NLL differs by a constant and a little noise."""
    names = {"scaled": demo.SCALED, "smoothed": demo.SMOOTHED, "meta": demo.META}
    noise = {"scaled": (0.0, 0.001, -0.001), "smoothed": (0.001, 0.0, 0.001), "meta": (0.0, 0.0, 0.001)}
    return [
        {"method": names[name], "seed": seed, "nll": value + noise[name][seed]}
        for name, value in nll.items()
        for seed in range(3)
    ]


@pytest.mark.parametrize(
    ("nll", "best"),
    [
        ({"scaled": 0.5, "smoothed": 0.4, "meta": 0.3}, demo.META),
        ({"scaled": 0.5, "smoothed": 0.3, "meta": 0.3}, demo.META),  # level: nothing to choose
        ({"scaled": 0.5, "smoothed": 0.3, "meta": 0.4}, demo.SMOOTHED),
        ({"scaled": 0.3, "smoothed": 0.3, "meta": 0.3}, demo.SCALED),  # level: the simplest
        ({"scaled": 0.3, "smoothed": 0.5, "meta": 0.4}, demo.SCALED),
    ],
)
def test_what_it_recommends(nll, best):
    assert demo.advice_on_training(runs_with(**nll)).startswith(f"use {best}. ")


def test_a_difference_is_that_of_a_paired_t_interval():
    from scipy.stats import ttest_rel

    runs = runs_with(scaled=0.5, meta=0.3)
    pairs = [demo.values_of(runs, name, "nll") for name in (demo.META, demo.SCALED)]
    interval = ttest_rel(*pairs).confidence_interval()
    gap, noise = demo.difference(runs, demo.META, demo.SCALED, "nll")
    assert (gap - noise, gap + noise) == pytest.approx((interval.low, interval.high))


def test_a_place_that_cannot_be_written_is_said_first(tmp_path):
    found = CliRunner().invoke(app, ["demo", "-o", str(tmp_path), "--json", str(tmp_path / "no" / "figures.json")])
    assert isinstance(found.exception, InvalidValueError)
    assert not list(tmp_path.iterdir())
