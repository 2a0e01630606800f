"""Run folders: locked for one process, history cut back on resume, damage and other versions named."""

import json
import subprocess
import sys

import pytest
import torch

from metacal.errors import InvalidValueError, StorageError
from metacal.evaluation import Predictions
from metacal.runs import RunFolder, build_spec

SPEC = build_spec({"dataset": "digits", "method": "mc"})


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_two_processes_cannot_hold_one_folder(folder):
    code = f"from metacal.runs import RunFolder\nwith RunFolder({str(folder.path)!r}).lock(): print('held')"
    with folder.lock():
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "InUseError" in other.stderr and "is in use by another process" in other.stderr
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert again.stdout == "held\n"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="could not be written"), RunFolder(tmp_path / "file" / "run").lock():
        pass


def test_history_is_cut_back(folder):
    for epoch in (1, 2, 3):
        folder.add_epoch({"epoch": epoch, "val_ece": epoch / 7}, {"val_logits": torch.zeros(2, 2)})
    folder.drop_epochs(1)
    assert folder.read_history() == [{"epoch": 1.0, "val_ece": 1 / 7}]
    assert not folder.epoch_file(2).exists()
    folder.add_epoch({"epoch": 2, "val_ece": 0.5, "strength": 0.1}, {"val_logits": torch.ones(2, 2)})
    assert folder.read_history()[1] == {"epoch": 2.0, "val_ece": 0.5, "strength": 0.1}
    assert torch.equal(folder.read_epoch(2)["val_logits"], torch.ones(2, 2))


def test_what_was_being_written_at_a_kill_is_gone_on_resume(folder):
    folder.add_epoch({"epoch": 1, "val_ece": 0.5}, {"val_logits": torch.zeros(2, 2)})
    for file in (folder.epoch_file(2), folder.path / "history.csv"):
        code = "import os, pathlib; from metacal.files import write_whole\n"
        code += f"write_whole(pathlib.Path({str(file)!r}), lambda file: os._exit(9))"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    places = [folder.path, folder.path / "epochs"]
    assert [len(list(place.glob(".*"))) for place in places] == [1, 1]
    folder.drop_epochs(1)
    assert [list(place.glob(".*")) for place in places] == [[], []]
    assert folder.epoch_file(1).exists() and len(folder.read_history()) == 1


def test_predictions_come_back_as_they_were(folder):
    said = Predictions.from_logits(torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1]), ["a", "<b>"], "mine")
    folder.write_predictions("test", said)
    again = folder.read_predictions("test")
    assert torch.equal(again.logits, said.logits) and again.class_names == ("a", "<b>") and again.name == "mine"


def test_another_spec_is_named_key_by_key(folder):
    folder.write_spec(SPEC, {})
    with pytest.raises(InvalidValueError, match=r"another one: seed \(0 there, 3 here\)"):
        folder.check_free_for(SPEC.model_copy(update={"seed": 3}), resume=True)
    with pytest.raises(InvalidValueError, match="this run begun; --resume goes on with it"):
        folder.check_free_for(SPEC, resume=False)
    folder.check_free_for(SPEC, resume=True)


def test_another_schema_is_refused(folder):
    folder.write_spec(SPEC, {})
    stored = json.loads((folder.path / "spec.json").read_text())
    (folder.path / "spec.json").write_text(json.dumps({**stored, "schema": 99}))
    with pytest.raises(InvalidValueError, match="must be of schema 2, got 99: another version of metacal wrote"):
        folder.read_spec()


@pytest.mark.parametrize("name", ["spec.json", "scores.json"])
def test_damage_is_named(folder, name):
    folder.write_spec(SPEC, {})
    (folder.path / name).write_text("{")
    with pytest.raises(StorageError, match=f"{name} must hold JSON"):
        folder.read_spec() if name == "spec.json" else folder.read_scores()


def test_a_damaged_tensor_file_is_named(folder):
    folder.write_splits({"train": torch.arange(5)})
    path = folder.path / "splits.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(StorageError, match=r"splits.safetensors could not be read"):
        folder.read_splits()


@pytest.mark.parametrize("text", ["epoch,val_ece\n1.0,one\n", "epoch,val_ece\n1.0,0.5,0.7\n"])
def test_a_damaged_history_is_named(folder, text):
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "history.csv").write_text(text)
    with pytest.raises(StorageError, match=r"history\.csv is damaged"):
        folder.read_history()
