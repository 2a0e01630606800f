"""Run folders: locked for one process, history cut back on resume, damage and other versions named."""

import json
import subprocess
import sys
from subprocess import PIPE

import pytest
import torch

from metacal.errors import InvalidValueError, StorageError
from metacal.evaluation import Predictions
from metacal.lab.training import RunFolder, build_spec
from metacal.lab.training.run_folder import write_tensors
from metacal.lab.training.spec import METHODS

SPEC = build_spec({"dataset": "digits", "method": "mc"})


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_two_processes_cannot_hold_one_folder(folder):
    code = f"""
import sys
from metacal.errors import InUseError
from metacal.lab.training import RunFolder

for _ in sys.stdin:
    try:
        with RunFolder({str(folder.path)!r}).lock():
            print("held", flush=True)
    except InUseError as error:
        print(error, flush=True)
"""
    with subprocess.Popen([sys.executable, "-uc", code], stdin=PIPE, stdout=PIPE, text=True) as other:
        with folder.lock():
            print("try", file=other.stdin, flush=True)
            assert "is in use by another process" in other.stdout.readline()
        assert other.communicate("again\n")[0] == "held\n"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="could not be written"), RunFolder(tmp_path / "file" / "run").lock():
        pass


def test_history_is_cut_back(folder):
    for epoch in (1, 2, 3):
        folder.add_epoch({"epoch": epoch, "val_ece": epoch / 7}, {"val_logits": torch.zeros(2, 2)})
    folder.drop_epochs(1)
    assert folder.read_history() == [{"epoch": 1.0, "val_ece": 1 / 7}]
    assert not (folder.path / "epochs/0002.safetensors").exists()
    folder.add_epoch({"epoch": 2, "val_ece": 0.5, "strength": 0.1}, {"val_logits": torch.ones(2, 2)})
    assert folder.read_history()[1] == {"epoch": 2.0, "val_ece": 0.5, "strength": 0.1}
    assert torch.equal(folder.read_epoch(2)["val_logits"], torch.ones(2, 2))


def test_what_was_being_written_at_a_kill_is_gone_on_resume(folder):
    folder.add_epoch({"epoch": 1, "val_ece": 0.5}, {"val_logits": torch.zeros(2, 2)})
    for file in ((folder.path / "epochs/0002.safetensors"), folder.path / "history.csv"):
        code = "import os, pathlib; from metacal.files import write_whole\n"
        code += f"write_whole(pathlib.Path({str(file)!r}), lambda file: os._exit(9))"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    places = [folder.path, folder.path / "epochs"]
    assert [len(list(place.glob(".*"))) for place in places] == [1, 1]
    folder.drop_epochs(1)
    assert [list(place.glob(".*")) for place in places] == [[], []]
    assert (folder.path / "epochs/0001.safetensors").exists()
    assert len(folder.read_history()) == 1


def test_predictions_come_back_as_they_were(folder):
    said = Predictions.from_logits(torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1]), ["a", "<b>"], "mine")
    folder.write_predictions("test", said)
    again = folder.read_predictions("test")
    assert torch.equal(again.logits, said.logits)
    assert again.class_names == ("a", "<b>")
    assert again.name == "mine"


def test_another_spec_is_named_key_by_key(folder):
    folder.write_spec(SPEC, {})
    with pytest.raises(InvalidValueError, match=r"contains another run: seed \(0 there, 3 here\); choose"):
        folder.check_free_for(SPEC.model_copy(update={"seed": 3}), resume=True)
    other = SPEC.model_copy(update={"method": METHODS["ce"]})
    with pytest.raises(InvalidValueError, match=r"contains another run: method \(mc there, ce here\); choose"):
        folder.check_free_for(other, resume=True)
    with pytest.raises(InvalidValueError, match="already contains this run, unfinished; pass --resume to continue"):
        folder.check_free_for(SPEC, resume=False)
    folder.check_free_for(SPEC, resume=True)


def test_another_schema_is_refused(folder):
    folder.write_spec(SPEC, {})
    stored = json.loads((folder.path / "spec.json").read_text())
    (folder.path / "spec.json").write_text(json.dumps({**stored, "schema": 99}))
    with pytest.raises(InvalidValueError, match="must be of schema 2, got 99: another version of metacal wrote"):
        folder.read_spec()


def test_a_damaged_spec_is_named(folder):
    folder.write_spec(SPEC, {})
    (folder.path / "spec.json").write_text("{")
    with pytest.raises(StorageError, match=r"spec\.json must hold JSON"):
        folder.read_spec()


@pytest.fixture
def complete(folder):
    """A complete run, with a file of every kind."""
    folder.write_spec(SPEC, {})
    folder.write_splits({"train": torch.arange(5)})
    folder.write_superclasses([0, 1])
    for epoch in (1, 2):
        folder.add_epoch({"epoch": epoch, "val_ece": 0.5}, {"val_logits": torch.ones(2, 2)})
    folder.write_predictions("test", Predictions.from_logits(torch.ones(5, 2), torch.ones(5, dtype=torch.int64)))
    folder.write_hyperparameters({"strength": [0.25]})
    folder.write_scores({"spec": SPEC.hash, "test": {"ece": 0.125}, "train_seconds": 1.0})
    folder.write_shift("corruptions", {"samples": 5})
    return folder


FILES = {
    "environment.json": RunFolder.read_environment,
    "splits.safetensors": RunFolder.read_splits,
    "history.csv": RunFolder.read_history,
    "epochs/0002.safetensors": lambda folder: folder.read_epoch(2),
    "predictions/test.safetensors": RunFolder.read_predictions,
    "hyperparameters.json": RunFolder.read_hyperparameters,
    "superclasses.json": RunFolder.read_superclasses,
    "scores.json": RunFolder.read_scores,
    "shift/corruptions.json": RunFolder.read_shifts,
}
FIXES = {
    "history.csv": "Restore it from a copy",
    "predictions/test.safetensors": "scores.json and repeat the end of the run: metacal train --run-dir",
    "scores.json": "scores.json and repeat the end of the run: metacal train --run-dir",
    "shift/corruptions.json": "Delete it and measure the shift again",
}


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_named(complete, name):
    path = complete.path / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1  # a digit, a bracket, a value: most of them parse as before
    FILES[name](complete)
    assert list(complete.damaged_files()) == []
    path.write_bytes(data)
    with pytest.raises(StorageError) as caught:
        FILES[name](complete)
    assert f"{path} is damaged: its contents do not have the checksum" in str(caught.value)
    assert FIXES.get(name, "") in str(caught.value)
    assert list(complete.damaged_files()) == [str(caught.value)]


def test_folders_without_checksums_open(complete):
    (complete.path / "checksums.json").unlink()
    history = complete.path / "history.csv"
    history.write_text(history.read_text().replace("0.5", "0.7"))
    assert [row["val_ece"] for row in complete.read_history()] == [0.7, 0.7]
    complete.write_shift("other", {"samples": 6})
    assert complete.read_shifts()["other"] == {"samples": 6}
    assert not (complete.path / "checksums.json").exists()


@pytest.mark.parametrize("text", ["[]", '{"history.csv": 1}', "{"])
def test_damaged_checksums_are_named(complete, text):
    (complete.path / "checksums.json").write_text(text)
    with pytest.raises(StorageError, match=r"checksums\.json"):
        complete.read_history()


def test_a_shift_that_is_measured_again_has_the_new_checksum(complete):
    complete.write_shift("corruptions", {"samples": 7})
    assert complete.read_shifts() == {"corruptions": {"samples": 7}}


@pytest.mark.parametrize("name", ["environment.json", "hyperparameters.json", "scores.json", "superclasses.json"])
@pytest.mark.parametrize("text", ["", "[", "7", '{"spec": ', "[" * 100_000])
def test_what_is_not_json_of_the_right_kind_is_named(complete, name, text):
    (complete.path / "checksums.json").unlink()
    (complete.path / name).write_text(text)
    with pytest.raises(StorageError, match=f"{name} is damaged: it must hold"):
        FILES[name](complete)


@pytest.mark.parametrize("change", [{"test": 1}, {"test": {"ece": "low"}}, {"val": []}, {"train_seconds": []}])
def test_scores_that_are_no_figures_are_named(complete, change):
    (complete.path / "checksums.json").unlink()
    path = complete.path / "scores.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(StorageError, match=r"scores\.json is damaged: it does not hold the scores of a run\. Delete "):
        complete.read_scores()


def test_a_history_that_was_cut_short(folder):
    for epoch in (1, 2, 3):
        folder.add_epoch({"epoch": epoch, "val_ece": 0.125}, {"val_logits": torch.zeros(2, 2)})
    path = folder.path / "history.csv"
    whole = path.read_text()
    for length in range(len("epoch,val_ece\n") + 1, len(whole)):
        path.write_text(whole[:length])
        with pytest.raises(StorageError, match=r"history\.csv is damaged: .* Delete it to continue the run"):
            folder.drop_epochs(3)
    path.write_text(whole)
    folder.drop_epochs(3)
    assert len(folder.read_history()) == 3


@pytest.mark.parametrize("metadata", [None, {"predictions": "{"}, {"predictions": "[]"}, {"predictions": "{}"}])
@pytest.mark.parametrize("names", [("logits", "targets"), ("logits",)])
def test_predictions_without_what_belongs_to_them(folder, metadata, names):
    tensors = {"logits": torch.ones(5, 2), "targets": torch.ones(5, dtype=torch.int64)}
    write_tensors(folder.path / "predictions" / "test.safetensors", {name: tensors[name] for name in names}, metadata)
    with pytest.raises(StorageError, match=r"test\.safetensors is damaged"):
        folder.read_predictions()


def test_a_model_by_import_path_is_code(folder):
    folder.write_spec(build_spec({"dataset": "digits", "model": "torch.hub:load"}), {})
    with pytest.raises(InvalidValueError, match=r"import path, 'torch\.hub:load', whose code .* --trust-model"):
        folder.read_spec_to_build(trust_model=False)
    assert folder.read_spec_to_build(trust_model=True).model == "torch.hub:load"


def test_a_damaged_tensor_file_is_named(folder):
    folder.write_splits({"train": torch.arange(5)})
    path = folder.path / "splits.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(StorageError, match=r"splits.safetensors is damaged: .* Restore it from a copy"):
        folder.read_splits()


@pytest.mark.parametrize("text", ["epoch,val_ece\n1.0,one\n", "epoch,val_ece\n1.0,0.5,0.7\n"])
def test_a_damaged_history_is_named(folder, text):
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "history.csv").write_text(text)
    with pytest.raises(StorageError, match=r"history\.csv is damaged"):
        folder.read_history()
