"""Tables in ``results`` say where they come from; those of the paper are of the runs that their command selects."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from benchmarks.report import as_csv

from metacal.lab.cli.run import find_exhibits, in_order, narrow, read_seeds, run, split_words
from metacal.lab.paper import EXHIBITS
from metacal.lab.training.recipes import read_overrides

RESULTS = Path(__file__).parent.parent / "results"
PAPER = RESULTS / "paper"
QUOTED = RESULTS / "benchmarks" / "published_code.json"
STORED = {*RESULTS.glob("*/*.jsonl")}
EARLIER = {"cifar10-equal-data-seed0": {"processor"}}  # gathered before that was kept, of runs that are gone
TABLES = sorted(
    path
    for path in RESULTS.rglob("*")
    if path.is_file() and path.name != "about.json" and path not in {QUOTED, *STORED}
)


def about(table):
    """Where a table comes from: it says so itself, or a file beside it does, of it or of all in the folder."""
    if table.suffix == ".json" and "about" in (content := json.loads(table.read_text(encoding="utf-8"))):
        return content["about"]
    beside = json.loads(table.with_name("about.json").read_text(encoding="utf-8"))
    return beside if "command" in beside else beside[table.stem]


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_a_table_says_where_it_comes_from(table):
    known = about(table)
    needed = {"command", "date", "metacal", "torch", "python", "machine", "processor", "cores", "system"}
    assert all(known[key] for key in needed - EARLIER.get(table.parent.name, set()))
    assert re.fullmatch("[0-9a-f]{12}", known["commit"])
    assert known.get("train_seconds") or known["wall_seconds"]
    assert known.get("seeds") or table.parent.name in ("benchmarks", "conformance", "house")
    assert not re.search(r"(^|[\s=])[/~]", known["command"]), "a path of one machine"
    if table.suffix == ".md" and PAPER not in table.parents:
        assert f"`{known['command']}`" in table.read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.parametrize("table", [path for path in TABLES if path.suffix == ".md"], ids=lambda path: path.stem)
def test_a_table_that_is_read_can_be_computed_with_too(table):
    numbers = table.with_suffix(".csv").read_text(encoding="utf-8")
    if PAPER not in table.parents:
        assert numbers == as_csv(table.read_text(encoding="utf-8").partition("\n\n")[2])


def test_there_are_tables_in_every_folder():
    assert {table.relative_to(RESULTS).parts[0] for table in TABLES} >= {path.name for path in RESULTS.iterdir()}


def parsed(command):
    """The options of a ``metacal run`` command, as the command line reads them."""
    program, name, *words = shlex.split(command)
    assert (program, name) == ("metacal", "run")
    app = typer.Typer()
    app.command()(run)
    with typer.main.get_command(app).make_context("run", words) as context:
        return context.params


def chosen_by(command):
    """Hashes of the runs that a command selects, the seeds of its runs and draws, and the names of its tables."""
    given = parsed(command)
    words = given["words"] or []
    overrides = read_overrides([word for word in words if "=" in word])
    named = [found for word in words if "=" not in word for found in find_exhibits(word)]
    exhibits = narrow(
        in_order(EXHIBITS.values()) if given["everything"] else named,
        split_words(given["rows"]),
        split_words(given["methods"]),
        read_seeds(given["seeds"]),
    )
    specs = [spec for exhibit in exhibits for spec in exhibit.specs(given["scale"], overrides)]
    draws = [draw for exhibit in exhibits for draw in exhibit.plan(given["scale"]).draws]
    seeds = sorted({each.seed for each in (*specs, *draws)})
    return {spec.hash for spec in specs}, seeds, {exhibit.name for exhibit in exhibits}


@pytest.mark.parametrize("path", sorted(PAPER.glob("*/about.json")), ids=lambda path: path.parent.name)
def test_the_command_selects_the_runs_that_are_recorded(path):
    about = json.loads(path.read_text(encoding="utf-8"))
    recorded = {run["hash"] for run in about["runs"]}
    tables = {file.stem for file in path.parent.iterdir()} - {"about"}
    assert (recorded, about["seeds"], tables) == chosen_by(about["command"])
    assert len(recorded) == len(about["runs"]) and about["seeds"]
