"""``metacal demo`` in a process of its own: its table, its JSON, and what it says when it cannot write."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metacal.cli import demo
from metacal.cli.app import app, main

FRACTIONS = {
    "accuracy",
    "ece",
    "ece_low",
    "ece_high",
    "mce",
    "adaptive_ece",
    "classwise_ece",
    "debiased_ece",
    "sweep_ece",
    "smooth_ece",
}


@pytest.fixture(scope="module")
def run_and_figures(tmp_path_factory):
    file = tmp_path_factory.mktemp("demo") / "scores.json"
    command = [str(Path(sys.executable).with_name("metacal")), "demo", "--json", str(file)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert run.returncode == 0, run.stderr
    return run, json.loads(file.read_text(encoding="utf-8"))


def test_table_shows_what_the_json_holds(run_and_figures):
    run, figures = run_and_figures
    assert run.stderr == ""
    row = re.search(r"^│ ece\s+│\s+(\S+) │\s+(\S+) │", run.stdout, re.M)
    assert row.groups() == (f"{figures['before']['ece']:.4f}", f"{figures['after']['ece']:.4f}")
    for name in figures["before"]:
        if not name.startswith("ece_"):
            assert re.search(rf"^│ {name}\s+│\s+{figures['before'][name]:.4f} │", run.stdout, re.M), name
    assert f"temperature {figures['temperature']:.2f}" in run.stdout and "too confident" in run.stdout


def test_json_holds_fractions(run_and_figures):
    _, figures = run_and_figures
    assert set(figures) == {"temperature", "before", "after"}
    for column in ("before", "after"):
        scores = figures[column]
        assert set(scores) == FRACTIONS | {"nll", "brier", "brier_calibration", "brier_refinement"}
        assert all(0.0 <= scores[name] <= 1.0 for name in FRACTIONS)
        assert 0.0 <= scores["brier"] <= 2.0 and scores["nll"] >= 0.0
        assert scores["ece_low"] < scores["ece"] < scores["ece_high"]


def test_temperature_mends_calibration_and_leaves_accuracy(run_and_figures):
    _, figures = run_and_figures
    before, after = figures["before"], figures["after"]
    assert round(before["accuracy"], 2) == 0.91 and before["accuracy"] == after["accuracy"]
    assert after["ece"] < before["ece"] / 2 and after["nll"] < before["nll"]
    assert 1.5 < figures["temperature"] < 4.0


@pytest.mark.parametrize(("name", "reason"), [("no/scores.json", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_written_is_one_line_and_status_2(tmp_path, monkeypatch, capsys, name, reason):
    probs, targets = demo.example_predictions()
    monkeypatch.setattr(demo, "example_predictions", lambda: (probs[:200], targets[:200]))
    monkeypatch.setattr(sys, "argv", ["metacal", "demo", "--json", str(tmp_path / name)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert errors == f"error: `--json` must name a file that can be written, got {tmp_path / name}: {reason}.\n"


def test_help_has_an_example():
    run = CliRunner().invoke(app, ["demo", "--help"])
    assert run.exit_code == 0 and "metacal demo --json scores.json" in run.stdout
