"""``metacal demo``, shortened: its tables, its page, its JSON, and that nothing is done twice."""

import json
import signal

import pytest
from typer.testing import CliRunner

from metacal.cli.app import app
from metacal.errors import InvalidValueError
from metacal.lab import training
from metacal.lab.cli import demo
from metacal.lab.paper import simulated


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(demo, "SIZES", (20,))
    monkeypatch.setattr(demo, "DRAWS", range(2))
    monkeypatch.setattr(demo, "SEEDS", range(2))
    monkeypatch.setattr(demo, "DIGITS", {**demo.DIGITS, "epochs": 2, "milestones": [1]})
    monkeypatch.setattr(simulated, "STEPS", 20)


@pytest.mark.usefixtures("quick")
def test_tables_page_and_json(tmp_path, monkeypatch):
    arguments = ["demo", "-o", str(tmp_path / "out"), "--json", str(tmp_path / "figures.json")]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {score["method"] for score in figures["simulated"]} == {"oracle", "ce", "ls", "mc", "ce-n"}
    assert [score["method"] for score in figures["digits"]] == [m for m in ("ce", "ls", "meta") for _ in range(2)]
    assert all(0 <= score["ece"] <= 1 and score["nll"] > 0 for score in figures["digits"])
    assert first.stderr.splitlines() == [
        "Simulated data: draw 1 of 2, 40 labels",
        "Simulated data: draw 2 of 2, 40 labels",
        *(f"Digits: {demo.NAMES[name]}, seed {seed}" for name in ("ce", "ls", "meta") for seed in range(2)),
        "Writing the report",
    ]
    assert "meta-calibration" in first.output
    assert "open it in a browser" in first.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert ", digits, seed 0" in page
    assert "What was learned" in page

    def never(*arguments, **keywords):
        raise AssertionError("done twice")

    monkeypatch.setattr(simulated, "fit_draw", never)
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert json.loads((tmp_path / "figures.json").read_text()) == figures


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("part", ["fit_draw", "run"])
def test_stopped_in_the_middle_it_goes_on(tmp_path, monkeypatch, part):
    home = {"fit_draw": simulated, "run": training}[part]
    done, calls = getattr(home, part), []

    def interrupted(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return done(*arguments, **keywords)

    monkeypatch.setattr(home, part, interrupted)
    arguments = ["demo", "-o", str(tmp_path / "out")]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 130, first.output
    assert "Run the same command to continue" in first.output
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0
    assert "open it in a browser" in again.output
    if part == "fit_draw":
        assert len(calls) == 2  # each draw once


def test_a_place_that_cannot_be_written_is_said_first(tmp_path):
    found = CliRunner().invoke(app, ["demo", "-o", str(tmp_path), "--json", str(tmp_path / "no" / "figures.json")])
    assert isinstance(found.exception, InvalidValueError)
    assert not list(tmp_path.iterdir())


def test_equal_labels():
    """What is learned is learned on the samples that all of them choose their checkpoint and temperature with."""
    for method in demo.METHODS:
        spec = demo.spec_of(method, 0)
        assert (spec.train_size, spec.val_size, spec.finish, spec.sets_meta_aside) == (120, 400, True, False)
