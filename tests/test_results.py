"""What is in ``results/paper`` is of the runs that the command beside it stands for today."""

import json
import shlex
from pathlib import Path

import pytest
import typer

from metacal.cli.run import listed, number, run
from metacal.cli.selection import find_exhibits, in_order, narrowed
from metacal.experiments import EXHIBITS
from metacal.runs.recipes import read_overrides

PAPER = Path(__file__).parent.parent / "results" / "paper"


def parsed(command):
    """The options of a ``metacal run`` command, as the command line reads them."""
    program, name, *words = shlex.split(command)
    assert (program, name) == ("metacal", "run")
    app = typer.Typer()
    app.command()(run)
    with typer.main.get_command(app).make_context("run", words) as context:
        return context.params


def chosen_by(command):
    """Hashes of the runs that a command selects, and the seeds of its runs and draws."""
    given = parsed(command)
    words = given["words"] or []
    overrides = read_overrides([word for word in words if "=" in word])
    named = [found for word in words if "=" not in word for found in find_exhibits(word)]
    exhibits = narrowed(
        in_order(EXHIBITS.values()) if given["everything"] else named,
        listed(given["rows"]),
        listed(given["methods"]),
        [number(seed) for seed in listed(given["seeds"])],
    )
    specs = [spec for exhibit in exhibits for spec in exhibit.specs(given["preset"], overrides)]
    draws = [draw for exhibit in exhibits for draw in exhibit.draws(given["preset"])]
    return {spec.hash for spec in specs}, sorted({each.seed for each in (*specs, *draws)})


@pytest.mark.parametrize("path", sorted(PAPER.glob("*/about.json")), ids=lambda path: path.parent.name)
def test_the_command_selects_the_runs_that_are_recorded(path):
    about = json.loads(path.read_text(encoding="utf-8"))
    recorded = {run["hash"] for run in about["runs"]}
    assert (recorded, about["seeds"]) == chosen_by(about["command"])
    assert len(recorded) == len(about["runs"]) and about["seeds"]
