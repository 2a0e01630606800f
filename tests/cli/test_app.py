"""The command as a shell meets it: help, version, unknown verbs, and one line for an error."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metacal.cli.app import app
from metacal.errors import InvalidValueError


class Failing:
    """Calls a function when it is looked at."""

    def __init__(self, function):
        self.values = function


def test_version(metacal):
    assert metacal("--version") == (0, f"metacal {version('metacal')}\n", "")


def test_help_names_every_verb(metacal):
    status, output, errors = metacal("--help")
    assert status == 0 and errors == ""
    assert "Classifiers whose confidence can be trusted" in output and "demo" in output


def test_unknown_verb_and_unknown_option(metacal):
    status, output, errors = metacal("dmeo")
    assert status == 2 and "dmeo" in errors and output == ""
    status, _, errors = metacal("demo", "--nothing")
    assert status == 2 and "--nothing" in errors and "Traceback" not in errors


def test_the_installed_command_is_this_one():
    command = str(Path(sys.executable).with_name("metacal"))
    run = subprocess.run([command, "dmeo"], capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "dmeo" in run.stderr


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InvalidValueError("`x` must be [1, 2], got [red]3[/]."), 2, "error: `x` must be [1, 2], got [red]3[/].\n"),
        (
            InvalidValueError("`x` must be " + "very " * 40 + "long."),
            2,
            "error: `x` must be " + "very " * 40 + "long.\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_one_line_and_a_status(metacal, monkeypatch, error, status, message):
    def fail():
        raise error

    monkeypatch.setattr("metacal.experiments.EXHIBITS", Failing(fail))
    assert metacal("ls") == (status, "", message)


def test_it_runs_as_a_module():
    run = subprocess.run([sys.executable, "-m", "metacal", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("metacal ")


def test_help_flows_with_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    shown = CliRunner().invoke(app, ["evaluate", "--help"]).stdout
    assert "one column probs or logits that holds lists; one column p is a binary model's" in shown
    assert "\n metacal evaluate test.parquet  " in shown  # examples keep lines of their own
