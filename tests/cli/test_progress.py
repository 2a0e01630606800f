"""What the terminal is told while something runs: text that is not ours is printed as it is, brackets and all."""

import re

import pytest

from metacal.cli.calibrate import print_trials
from metacal.cli.exhibits import print_exhibit
from metacal.cli.progress import watching
from metacal.cli.runs_progress import following
from metacal.cli.train import SHOWN
from metacal.engines import LocalEngine, RunFailed
from metacal.posthoc.choose import Trial
from metacal.reporting.exhibits import prepare_exhibit
from metacal.runs import RunFolder, build_spec
from metacal.runs.run_store import RunStore
from metacal.training.events import Notice

# The first part is a closing tag to Rich, which raises; the second one is a tag, which is left out.
HOSTILE = "[/data/x] is damaged [enforce fail at alloc_cpu.cpp:114]"
SPEC = build_spec({"dataset": "digits"})


@pytest.fixture(params=["terminal", "file"])
def watched(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    if request.param == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")


def plain(text):
    """Without colours and the like."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.usefixtures("watched")
def test_a_failed_run(capsys):
    with following(1) as emit:
        emit(RunFailed(SPEC, HOSTILE))
    assert f"failed, {HOSTILE}" in plain(capsys.readouterr().err)


@pytest.mark.usefixtures("watched")
def test_a_notice_and_a_title(capsys, tmp_path):
    spec = build_spec({"dataset": str(tmp_path / "[/x] [b].npz")})
    with watching(spec, RunFolder(tmp_path)) as emit:
        emit(Notice(HOSTILE))
    said = plain(capsys.readouterr().err)
    assert HOSTILE in said and ("━" not in said or spec.title in said)


def test_failures_at_the_end_of_a_command(metacal, monkeypatch, tmp_path):
    monkeypatch.setattr(LocalEngine, "execute", lambda *_, **__: {SPEC.hash: HOSTILE})
    words = ["hyperparameters", "--preset", "smoke", "--rows", "cifar-10/", "--methods", "ce", "--seeds", "0"]
    output = tmp_path / "[x]" / "tables"
    status, printed, errors = metacal("run", *words, "--store", tmp_path / "runs", "-o", output)
    assert status == 1 and errors == f"failed: {HOSTILE}\n" and f"{output}/report.html: open it" in printed


def test_paths_with_brackets(metacal, monkeypatch, tmp_path):
    odd = tmp_path / "[x]" / "a[" / "b]"
    status, output, errors = metacal("data", "ls", "--data-dir", odd)
    assert status == 0 and f"--data-dir {odd} " in output, errors
    status, output, errors = metacal("validate", "--store", odd)
    assert status == 0 and f"0 runs in {odd}, 0 complete" in output, errors
    scores = dict.fromkeys(("val", "test"), dict.fromkeys(SHOWN, 0.5))
    monkeypatch.setattr("metacal.pipeline.run", lambda *_, **__: {"best_epoch": 1, **scores})
    status, output, errors = metacal("train", "dataset=digits", "--run-dir", odd)
    assert status == 0 and output.startswith(f"{odd}, epoch 1"), errors


def test_figures_that_go_to_a_path_with_brackets(capsys, tmp_path, monkeypatch):
    from metacal.experiments import EXHIBITS

    monkeypatch.setenv("COLUMNS", "300")
    name = "synthetic-boundary"
    data = prepare_exhibit(EXHIBITS[name], RunStore(tmp_path), "smoke")
    print_exhibit(type(data)(**{**vars(data), "panels": (None,)}), tmp_path / "[x]")
    assert f"{tmp_path}/[x]/{name}.png" in capsys.readouterr().out


def test_why_a_calibrator_could_not_be_tried(capsys, monkeypatch):
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", "300")
    print_trials([Trial("isotonic", None, False, HOSTILE)], "temperature", Console())
    assert HOSTILE in capsys.readouterr().out
