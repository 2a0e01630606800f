"""The command as a shell meets it: help, version, unknown verbs, and one line for an error."""

import inspect
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from metacal import __version__
from metacal.cli.app import LAB, LIBRARY, app
from metacal.cli.evaluate import evaluate
from metacal.errors import InvalidValueError
from metacal.evaluation import evaluate_file


class Failing:
    """Calls a function when it is looked at."""

    def __init__(self, function):
        self.values = function


def test_version(metacal):
    assert metacal("--version") == (0, f"metacal {__version__}\n", "")


def test_help_names_every_verb(metacal):
    status, output, errors = metacal("--help")
    assert status == 0
    assert errors == ""
    assert "Classifiers whose confidence can be trusted" in output
    assert "demo" in output


def test_unknown_verb_and_unknown_option(metacal):
    status, output, errors = metacal("dmeo")
    assert status == 2
    assert "dmeo" in errors
    assert output == ""
    status, _, errors = metacal("demo", "--nothing")
    assert status == 2
    assert "--nothing" in errors
    assert "Traceback" not in errors


def test_the_installed_command_is_this_one():
    command = str(Path(sys.executable).with_name("metacal"))
    run = subprocess.run([command, "dmeo"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "dmeo" in run.stderr


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

    monkeypatch.setattr("metacal.lab.paper.EXHIBITS", Failing(fail))
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


LOADED = """
import sys
from metacal.cli import main
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
try:
    main()
finally:
    slow = {"matplotlib", "numpy", "pandas", "scipy", "sklearn", "torch", "torchmetrics"}
    print("loaded:", *sorted(slow & sys.modules.keys()), file=sys.stderr)
"""


def in_a_new_process(*words, missing="nothing"):
    """Status, output and errors of a command where some packages are not installed, and which slow ones it loaded."""
    command = [sys.executable, "-c", LOADED, missing, *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    errors, _, loaded = run.stderr.partition("loaded:")
    return run.returncode, run.stdout, errors, loaded.split()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["ls"], 0),
        (["data", "--help"], 0),
        (["evaluate", "--help"], 0),
        (["evaluate", "--no-such-option"], 2),
    ],
)
def test_nothing_slow_is_loaded_before_it_is_needed(words, status):
    found, _, _, loaded = in_a_new_process(*words)
    assert (found, loaded) == (status, [])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_evaluate_loads_no_more_than_it_needs(tmp_path, suffix):
    rows = {"p_cat": [0.9, 0.2, 0.4], "p_dog": [0.1, 0.8, 0.6], "label": ["cat", "dog", "dog"]}
    path, table = tmp_path / f"said{suffix}", pyarrow.table(rows)
    (csv.write_csv if suffix == ".csv" else parquet.write_table)(table, path)
    status, output, _, loaded = in_a_new_process("evaluate", path)
    assert status == 0
    assert "3 samples, 2 classes" in output
    assert loaded == ["numpy", "torch"]


def test_every_verb_can_be_asked_for_without_torch():
    """Its module is loaded by `metacal --help`, and so are its options: completion needs them."""
    homes = sorted({verb.__module__ for verb in LIBRARY + LAB} | {"metacal.lab.cli.data"})
    script = f"import sys, {', '.join(homes)}; print('torch' in sys.modules or 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_defaults_are_those_of_the_library():
    """They are written down twice, so that `metacal --help` does not load the library."""
    typed, library = inspect.signature(evaluate).parameters, inspect.signature(evaluate_file).parameters
    for ours, theirs in (("bins", "num_bins"), ("sample", "sample"), ("resamples", "num_resamples"), ("seed", "seed")):
        assert typed[ours].default == library[theirs].default


@pytest.mark.parametrize(
    ("missing", "words", "package", "extra"),
    [
        ("typer", ["--help"], "typer", "cli"),
        ("rich,rich.console", ["evaluate", "x.csv"], "rich", "cli"),
        ("lightning_fabric", ["train", "dataset=digits"], "lightning_fabric", "lab"),
        ("pooch", ["data", "ls"], "pooch", "lab"),
        ("pooch", ["train", "--help"], "pooch", "lab"),
        ("filelock", ["ls", "--no-such-option"], "filelock", "lab"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(missing, words, package, extra):
    status, output, errors, _ = in_a_new_process(*words, missing=missing)
    assert (status, output) == (2, "")
    assert errors == f"error: `{package}` must be installed for this: pip install 'metacal[{extra}]'\n"


def test_verbs_of_the_lab_are_listed_where_the_lab_is_installed():
    _, with_lab, _, _ = in_a_new_process("--help")
    _, without, _, _ = in_a_new_process("--help", missing="pooch")
    for verb in ("train", "shift", "validate", "data"):
        assert f"│ {verb} " in with_lab
        assert f"│ {verb} " not in without
    assert " evaluate " in without


@pytest.mark.filterwarnings("default")
def test_a_warning_of_ours_is_one_line(metacal, tmp_path):
    """Columns that are called logits and hold probabilities."""
    file = tmp_path / "said.csv"
    file.write_text("logit_a,logit_b,label\n0.9,0.1,a\n0.2,0.8,b\n0.3,0.7,a\n")
    status, output, errors = metacal("evaluate", file)
    assert status == 0
    assert "accuracy" in output
    assert errors.count("warning: ") == 1
    assert "MetacalWarning" not in errors
    assert "warning: `logits` look like probabilities: all 3 rows lie in [0, 1] and sum to 1." in errors


def test_a_package_that_only_the_users_model_needs_is_no_missing_extra(metacal, tmp_path, monkeypatch):
    """No extra of ours would install it."""
    model = ["from torch import nn", "class Net(nn.Module):", "    def __init__(self, num_classes):"]
    model += ["        super().__init__()", "        self.head = nn.Linear(64, 10)", "    def forward(self, x):"]
    (tmp_path / "their_model.py").write_text("\n".join([*model, "        import their_package"]))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="their_package"):
        metacal("train", "dataset=digits", "model=their_model:Net", "epochs=1", "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "x.csv", "--bins", "0"], "Invalid value for '--bins'"),
        (["evaluate", "x.csv", "--nosuch"], "No such option"),  # click's versions go on differently
        (["evaluate"], "Missing argument 'FILE"),
        (["calibrate", "x.csv"], "Missing option '--out'"),
        (["evaluat", "x.csv"], "No such command 'evaluat'"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(metacal, words, message):
    status, output, errors = metacal(*words)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"error: {message}")
    assert errors.endswith("--help`.\n")
