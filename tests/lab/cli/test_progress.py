"""What the terminal is told while something runs: text that is not ours is printed as it is, brackets and all."""

import re

import pytest
import torch

from metacal.cli.calibrate import print_trials
from metacal.cli.terminal import Console
from metacal.lab.cli.progress import RunsLog, TrainingLog, watch_runs, watch_training
from metacal.lab.cli.run import print_exhibit
from metacal.lab.cli.train import SHOWN
from metacal.lab.engines import LocalEngine, RunFailed, RunFinished, RunProgressed, RunStarted
from metacal.lab.paper.output import prepare_exhibit
from metacal.lab.training import build_spec
from metacal.lab.training.events import BatchDone, EpochDone, Notice, TrainingBegan
from metacal.lab.training.run_folder import RunStore
from metacal.posthoc.choose import Trial

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
    with watch_runs(1) as emit:
        emit(RunFailed(SPEC, HOSTILE))
    assert f"failed, {HOSTILE}" in plain(capsys.readouterr().err)


@pytest.mark.usefixtures("watched")
def test_a_notice_and_a_title(capsys, tmp_path):
    spec = build_spec({"dataset": str(tmp_path / "[/x] [b].npz")})
    with watch_training(spec) as emit:
        emit(Notice(HOSTILE))
    said = plain(capsys.readouterr().err)
    assert HOSTILE in said
    assert "━" not in said or spec.title in said


def test_an_epoch_that_takes_long_says_how_far_it_is():
    said, now = [], [0.0]
    log = TrainingLog(said.append, clock=lambda: now[0])
    log(TrainingBegan(epochs=20, batches=4, epoch=2, batch=1))
    figures = {"train_loss": 0.25, "val_error": 0.123, "val_ece": 0.021, "val_dece": 0.02}
    for batch in (2, 3, 4):
        now[0] += 20.0
        log(BatchDone(2, batch, torch.tensor(0.5)))
    log(EpochDone(3, figures, {}, is_best=True))
    log(BatchDone(3, 1, torch.tensor(0.5)))
    log(Notice("Stopped early."))
    assert said == [
        "epoch 3/20  batch 3/4  loss 0.5000  40 s",
        "epoch 3/20  loss 0.2500  val error 12.30%  ECE 2.10%  DECE 2.00%  60 s",
        "Stopped early.",
    ]


def test_only_the_first_process_is_heard(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with watch_training(SPEC) as emit:
        emit(Notice("Stopped early."))
    assert capsys.readouterr() == ("", "")


def test_runs_that_start_and_end_and_epochs_now_and_then():
    said, now = [], [0.0]
    log = RunsLog(2, said.append, clock=lambda: now[0])
    log(RunStarted(SPEC))
    log(RunProgressed(SPEC, 0, 9, {}))
    for epoch in (1, 2, 3, 4):
        now[0] += 20.0
        log(RunProgressed(SPEC, epoch, 9, {"val_error": 0.123, "val_ece": 0.021, "val_dece": 0.02}))
    log(RunFinished(SPEC, {"test": {"accuracy": 0.9, "ece": 0.05}}))
    log(RunFailed(SPEC, "no disk"))
    epoch = "digits-mlp-ce-seed0: epoch {}/9  val error 12.30%  ECE 2.10%  DECE 2.00%"
    assert said == [
        "digits-mlp-ce-seed0: started",
        epoch.format(2),
        epoch.format(4),
        "1/2  digits-mlp-ce-seed0: error 10.00%, ECE 5.00%",
        "2/2  digits-mlp-ce-seed0: failed, no disk",
    ]


def test_failures_at_the_end_of_a_command(metacal, monkeypatch, tmp_path):
    monkeypatch.setattr(LocalEngine, "execute", lambda *_, **__: {SPEC.hash: HOSTILE})
    words = ["hyperparameters", "--scale", "smoke", "--rows", "cifar-10/", "--methods", "ce", "--seeds", "0"]
    output = tmp_path / "[x]" / "tables"
    status, printed, errors = metacal("run", *words, "--store", tmp_path / "runs", "-o", output)
    assert status == 1
    assert errors == f"failed: {HOSTILE}\n"
    assert f"{output}/report.html: open it" in printed


def test_paths_with_brackets(metacal, monkeypatch, tmp_path):
    odd = tmp_path / "[x]" / "a[" / "b]"
    status, output, errors = metacal("data", "ls", "--data-dir", odd)
    assert status == 0, errors
    assert f"--data-dir {odd} " in output
    status, output, errors = metacal("validate", "--store", odd)
    assert status == 0, errors
    assert f"0 runs in {odd}, 0 complete" in output
    scores = dict.fromkeys(("val", "test"), dict.fromkeys(SHOWN, 0.5))
    monkeypatch.setattr("metacal.lab.training.pipeline.run", lambda *_, **__: {"best_epoch": 1, **scores})
    status, output, errors = metacal("train", "dataset=digits", "--run-dir", odd)
    assert status == 0, errors
    assert output.startswith(f"{odd}, epoch 1")


def test_figures_that_go_to_a_path_with_brackets(capsys, tmp_path, monkeypatch):
    from metacal.lab.paper import EXHIBITS

    monkeypatch.setenv("COLUMNS", "300")
    name = "synthetic-boundary"
    data = prepare_exhibit(EXHIBITS[name].plan("smoke"), RunStore(tmp_path))
    print_exhibit(type(data)(**{**vars(data), "panels": (None,)}), tmp_path / "[x]")
    assert f"{tmp_path}/[x]/{name}.png" in capsys.readouterr().out


def test_why_a_calibrator_could_not_be_tried(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    print_trials([Trial("isotonic", None, False, note=HOSTILE)], "temperature", Console())
    assert HOSTILE in capsys.readouterr().out
