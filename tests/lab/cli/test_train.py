"""``metacal train`` as a user runs it: in another process, killed, resumed, on two processes, with bad input."""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from metacal.cli import main
from metacal.errors import InvalidValueError
from metacal.lab.cli.train import SHOWN, resume_command, train
from metacal.lab.training import Hardware, RunFolder, RunSpec, build_spec
from metacal.lab.training.checkpoints import Checkpoints, write_checkpoint

QUICK = ["dataset=digits", "train_size=256", "batch_size=16", "model_options.hidden=[32]", "milestones=4"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def command(*words):
    return [str(Path(sys.executable).parent / "metacal"), "train", *words]


def metacal_train(*words):
    return subprocess.run(command(*words), capture_output=True, text=True, env=ENVIRONMENT)


@pytest.fixture
def train_here(monkeypatch, capsys):
    """The same command in this process: quicker, for what ends before anything is trained."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["metacal", "train", *words])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, capsys.readouterr().err

    return run


def ends_of(folder):
    """Everything that must come out the same, to the bit."""
    path = folder.path
    files = [path / "history.csv", *sorted((path / "epochs").iterdir()), *sorted((path / "predictions").iterdir())]
    scores = folder.read_scores()
    return [file.read_bytes() for file in files], scores["test"], scores["best_epoch"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What a command said, in a process of its own, that made a complete run; and where that is."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    places = ["--run-dir", str(folder), "--json", str(folder.parent / "scores.json")]
    return metacal_train(*QUICK, "method=meta", "epochs=5", *places), folder


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished[1], tmp_path / "copied"))


def test_scores_that_were_cut_short_are_made_again(train_here, copied):
    path = copied / "scores.json"
    whole = path.read_text()
    path.write_text(whole[:-9])
    status, complaint = train_here("--run-dir", str(copied), "--resume")
    assert status == 2
    assert f"Delete {path} and repeat the end of the run" in complaint
    assert complaint.count("\n") == 1
    path.unlink()
    status, _ = train_here("--run-dir", str(copied), "--resume")
    assert status == 0
    assert json.loads(path.read_text())["test"] == json.loads(whole)["test"]


@pytest.mark.parametrize("verb", [["report"], ["validate", "--store"]])
def test_a_flipped_bit_is_named_by_what_reads_it(copied, verb, monkeypatch, capsys):
    path = copied / "predictions" / "test.safetensors"
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    place = copied if verb == ["report"] else copied.parent
    monkeypatch.chdir(copied.parent)
    monkeypatch.setattr(sys, "argv", ["metacal", *verb, str(place)])
    with pytest.raises(SystemExit) as left:
        main()
    output, errors = capsys.readouterr()
    assert left.value.code == (2 if verb == ["report"] else 1)
    assert f"{path} is damaged: its contents do not have the checksum they were written with" in errors + output
    assert list(copied.parent.glob("*.html")) == []


def test_a_run_whose_files_do_not_fit_together(copied, monkeypatch, capsys):
    (copied / "checksums.json").unlink()
    (copied / "hyperparameters.json").write_text('{"soft_labels": [[0.5, 0.5], [1.0]]}')
    monkeypatch.setattr(sys, "argv", ["metacal", "report", str(copied), "-o", str(copied.parent / "page.html")])
    with pytest.raises(SystemExit) as left:
        main()
    errors = capsys.readouterr().err
    assert left.value.code == 2
    assert f"{copied} is damaged: its files do not fit together (ValueError: " in errors


STATES = {
    "nothing": lambda state: {},
    "no processes": lambda state: {key: value for key, value in state.items() if key != "processes"},
    "no process": lambda state: {**state, "processes": []},
    "another model": lambda state: {**state, "model": {"weight": torch.ones(1)}},
    "another optimiser": lambda state: {**state, "optimizer": {"state": {}, "param_groups": []}},
    "progress of text": lambda state: {**state, "processes": [{**state["processes"][0], "progress": "much"}]},
    "no random numbers": lambda state: {
        **state,
        "processes": [{**state["processes"][0], "random": {"cpu": torch.ones(3)}}],
    },
}


@pytest.mark.parametrize("change", STATES)
def test_checkpoints_of_something_else(train_here, copied, change):
    (copied / "scores.json").unlink()
    checkpoints = Checkpoints(copied / "checkpoints")
    state, _ = checkpoints.load_last()
    checkpoints.previous.unlink(missing_ok=True)
    write_checkpoint(STATES[change](state), checkpoints.last)
    status, complaint = train_here("--run-dir", str(copied), "--resume")
    assert status == 2
    assert "Traceback" not in complaint
    last = complaint.splitlines()[-1]
    assert last.startswith(f"error: The checkpoints in {checkpoints.folder} do not belong to this run (")
    assert last.endswith("or delete them to start the run again.")


def test_a_best_checkpoint_of_something_else(train_here, copied):
    (copied / "scores.json").unlink()
    checkpoints = Checkpoints(copied / "checkpoints")
    write_checkpoint({"epoch": 1}, checkpoints.best, checkpoints.spare)
    status, complaint = train_here("--run-dir", str(copied), "--resume")
    assert status == 2
    assert "do not belong to this run (KeyError: 'model')" in complaint


def test_a_folder_cannot_have_code_run(train_here, finished, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    Path("planted.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    folder = RunFolder(shutil.copytree(finished[1], tmp_path / "run"))
    folder.write_spec(folder.read_spec().model_copy(update={"model": "planted:Net", "model_options": {}}), {})
    refusal = "names a model by import path, 'planted:Net', whose code would be run: pass --trust-model"
    monkeypatch.setattr(sys, "argv", ["metacal", "shift", str(folder.path)])
    with pytest.raises(SystemExit) as left:
        main()
    errors = capsys.readouterr().err
    assert left.value.code == 2
    assert refusal in errors
    assert errors.count("\n") == 1
    (folder.path / "scores.json").unlink()
    status, complaint = train_here("--run-dir", str(folder.path), "--resume")
    assert status == 2
    assert refusal in complaint
    assert complaint.count("\n") == 1
    assert not Path("ran").exists()
    status, complaint = train_here("--run-dir", str(folder.path), "--resume", "--trust-model")
    assert Path("ran").exists()
    assert "must be importable as 'module:Class'" in complaint


def test_the_command_that_goes_on_trusts_a_model_that_was_typed(tmp_path):
    specs = [build_spec({"dataset": "digits", "model": model}) for model in ("mine:Net", "mlp")]
    folder = RunFolder(tmp_path)
    own, known = (resume_command(["devices=2", "seed=1"], spec, folder, None) for spec in specs)
    assert own == f"metacal train devices=2 --run-dir {tmp_path} --resume --trust-model"
    assert known == f"metacal train devices=2 --run-dir {tmp_path} --resume"


def test_scores_may_go_where_the_run_makes_a_folder(train_here, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, complaint = train_here(*QUICK, "epochs=1", "--json", "runs/scores.json")
    assert status == 0, complaint
    assert "ece" in json.loads(Path("runs/scores.json").read_text())["test"]
    status, complaint = train_here(*QUICK, "epochs=1", "seed=1", "--json", "elsewhere/scores.json")
    assert status == 2
    assert "folder that exists" in complaint


def test_a_run_from_names_to_scores(finished):
    done, folder = finished
    assert done.returncode == 0, done.stderr
    assert "classwise_ece" in done.stdout
    assert RunFolder(folder).read_scores()["finish"]["verdict"] == done.stdout.splitlines()[-1]
    line = r"epoch {}/5  loss \d\.\d{{4}}  val error [\d.]+%  ECE [\d.]+%  DECE [\d.]+%  mean strength [\d.]+  \d+ s"
    for number, said in enumerate(done.stderr.splitlines(), start=1):  # a file, no terminal: a line per epoch, no bar
        assert re.fullmatch(line.format(number), said), said
    assert number == 5
    assert json.loads((folder.parent / "scores.json").read_text()) == RunFolder(folder).read_scores()


def test_figures_that_are_not_finite(tmp_path, train_here, capsys, monkeypatch):
    """They are null in every file, and NaN again where a complete run is read."""
    measures = dict.fromkeys(SHOWN, 0.5)
    spec = build_spec({"dataset": "digits"})
    scores = {"spec": spec.hash, "best_epoch": 1, "train_seconds": 1.0, "val": measures}
    folder = RunFolder(tmp_path / "run")
    folder.write_spec(spec, {})
    monkeypatch.setattr(
        "metacal.lab.training.pipeline.run", lambda *_, **__: {**scores, "test": {**measures, "nll": math.inf}}
    )
    words = ["dataset=digits", "--run-dir", str(folder.path), "--json", str(folder.path / "s.json")]
    assert train_here(*words) == (0, "")
    assert json.loads((folder.path / "s.json").read_text())["test"]["nll"] is None
    folder.write_scores({**scores, "test": {**measures, "nll": math.inf}})
    assert "Infinity" not in (folder.path / "scores.json").read_text()
    monkeypatch.undo()
    assert math.isnan(folder.read_scores()["test"]["nll"])
    monkeypatch.setattr(sys, "argv", ["metacal", "train", "--run-dir", str(folder.path), "--resume"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "nan" in capsys.readouterr().out
    (folder.path / "checksums.json").unlink()
    (folder.path / "scores.json").write_text(json.dumps({**scores, "test": {**measures, "nll": math.inf}}))
    assert folder.read_scores()["test"]["nll"] == math.inf  # as earlier versions wrote it


def test_a_place_for_json_that_cannot_be(tmp_path, train_here):
    place = tmp_path / "no" / "s.json"
    status, complaint = train_here(*QUICK, "--run-dir", str(tmp_path / "run"), "--json", str(place))
    assert status == 2
    assert complaint == f"error: `--json` must name a file in a folder that exists, got {place}.\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_the_same_to_the_bit(tmp_path):
    words = [*QUICK, "method=mc", "epochs=40", "model_options.dropout=0.2"]
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    assert metacal_train(*words, "--run-dir", str(whole.path)).returncode == 0
    draw = random.Random(0)
    kills = 0
    while not cut.is_complete:
        process = subprocess.Popen(command(*words, "--run-dir", str(cut.path), "--resume"), env=ENVIRONMENT)
        seen = len(cut.read_history())
        while kills < 2 and process.poll() is None and len(cut.read_history()) <= seen:
            time.sleep(0.01)
        if kills < 2 and process.poll() is None:
            time.sleep(draw.uniform(0.0, 0.3))
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 2
    assert ends_of(cut) == ends_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(number, tmp_path):
    folder = RunFolder(tmp_path / "run")
    words = [*QUICK, "epochs=400", "--run-dir", str(folder.path)]
    process = subprocess.Popen(command(*words), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while not folder.read_history():
        time.sleep(0.02)
    process.send_signal(number)
    _, complaint = process.communicate()
    assert process.returncode == 128 + number
    assert complaint.startswith("epoch 1/400  loss ")
    assert complaint.splitlines()[-1].startswith("Stopped; everything is saved. Continue with: metacal train --run-dir")
    spec = folder.read_spec()
    with pytest.raises(InvalidValueError, match="lr"):  # another run than the one that was begun
        folder.check_free_for(spec.model_copy(update={"lr": 0.3}), resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "launcher"),
    [
        (["method=ce"], "torchrun"),
        (["method=mc", "outer=paper", "meta=split"], "ours"),
        (["method=meta", "through=head", "meta_every=1"], "ours"),
        (["method=meta", "through=model", "meta_every=2"], "ours"),
    ],
)
def test_two_processes_train_as_one(method, launcher, tmp_path):
    words = [*QUICK, *method, "epochs=3", "reduction=sum", "clip_norm=2", "accelerator=cpu"]
    words.append("precision=64")  # in which the order of sums, another on every CPU, makes no difference
    one, two = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    assert metacal_train(*words, "--run-dir", str(one.path)).returncode == 0
    joint = command(*words, "--run-dir", str(two.path), "devices=2", "strategy=ddp")
    if launcher == "torchrun":
        joint = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node=2", *joint]
    done = subprocess.run(joint, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert [said[:9] for said in done.stderr.splitlines() if said.startswith("epoch")] == [
        f"epoch {number}/3" for number in (1, 2, 3)
    ]  # of two processes, one prints
    for alone, together in zip(one.read_history(), two.read_history(), strict=True):
        for name in ("train_loss", "train_error", "train_ece", "val_loss", "val_dece"):
            assert together[name] == pytest.approx(alone[name], rel=1e-5), name
    torch.testing.assert_close(two.read_predictions().logits, one.read_predictions().logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_two_processes_stop_and_go_on_to_the_same_end(tmp_path):
    machine = ["accelerator=cpu", "devices=2", "strategy=ddp"]
    words = [*QUICK, "epochs=30", "method=meta", *machine]
    whole, cut = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "cut")
    assert metacal_train(*words, "--run-dir", str(whole.path)).returncode == 0
    process = subprocess.Popen(
        command(*words, "--run-dir", str(cut.path)), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    while len(cut.read_history()) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate()
    assert process.returncode == 143, complaint
    said = next(line for line in complaint.splitlines() if line.startswith("Stopped"))
    assert " ".join(machine) in said
    again = metacal_train(*machine, "--run-dir", str(cut.path), "--resume")
    assert again.returncode == 0, again.stderr
    assert ends_of(cut) == ends_of(whole)


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["dataset=digits", "model=:Net"], ["model"]),
        (["dataset=digits", "accelerator=gpu"], ["accelerator"]),
        (["dataset=digts"], ["digts", "digits"]),
        (["dataset=digits", "model=resnt18"], ["resnt18", "resnet18"]),
        (["dataset=digits", "method=mc-x", "epoch=3"], ["mc-x", "epoch", "epochs"]),
        (["dataset=digits", "val_size=5000"], ["val"]),
        (["dataset=simulated", "model=resnet8"], ["resnet8"]),
        (
            ["dataset=digits", "strategy=fsdp"],
            ["`strategy`: must be auto or ddp: checkpoints", "got 'fsdp'"],
        ),
        (["dataset=digits", "model=nowhere:Net"], ["nowhere"]),
        (["dataset=missing.npz"], ["missing.npz"]),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(words, messages, tmp_path, train_here):
    status, complaint = train_here(*words, "--run-dir", str(tmp_path / "run"))
    assert status == 2
    assert complaint.startswith("error: "), complaint
    assert complaint.count("\n") == 1
    for message in messages:
        assert message in complaint
    assert not (tmp_path / "run").exists()


def test_help_and_documentation_name_every_key():
    page = (Path(__file__).parents[3] / "docs" / "train.md").read_text(encoding="utf-8")
    for key in (*RunSpec.model_fields, *Hardware.model_fields):
        assert re.search(rf"\b{key}\b", train.__doc__), key
        assert re.search(rf"\b{key}\b", page), key


def test_labels_out_of_range_in_the_users_own_data(tmp_path, train_here):
    arrays = {"inputs": np.zeros((20, 4), np.float32), "targets": np.full(20, -1)}
    np.savez(tmp_path / "own.npz", **arrays)
    status, complaint = train_here(f"dataset={tmp_path / 'own.npz'}", "--run-dir", str(tmp_path / "run"))
    assert status == 2, complaint
    assert "targets" in complaint
    assert "-1" in complaint


def test_a_folder_in_use(tmp_path, train_here):
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        status, complaint = train_here(*QUICK, "epochs=1", "--run-dir", str(folder.path))
    assert status == 2
    assert "in use by another process" in complaint
    assert not folder.exists
