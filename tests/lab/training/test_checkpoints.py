"""Checkpoints: whole or not at all, hashed, and the one before steps in for a damaged one."""

import errno
import hashlib
import io
import os
import pickle
import zipfile

import pytest
import torch

from metacal.errors import StorageError
from metacal.lab.training.checkpoints import MARK, Checkpoints, read_checkpoint, write_checkpoint


@pytest.fixture
def two(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save_last({"number": number, "weights": torch.arange(1000.0)})
    return checkpoints


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def damage_flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_empty(path):
    path.write_bytes(b"")


def test_the_last_one_is_read(two):
    state, complaints = two.load_last()
    assert state["number"] == 2
    assert torch.equal(state["weights"], torch.arange(1000.0))
    assert complaints == []


def test_no_checkpoint_is_no_state(tmp_path):
    assert Checkpoints(tmp_path).load_last() == (None, [])


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty])
def test_a_damaged_one_is_passed_over(two, damage):
    damage(two.last)
    state, complaints = two.load_last()
    assert state["number"] == 1
    assert len(complaints) == 1
    assert "last.ckpt is damaged" in complaints[0]


def test_with_both_damaged_it_says_so(two):
    damage_cut(two.last)
    damage_flip(two.previous)
    with pytest.raises(StorageError, match="No other checkpoint is left"):
        two.load_last()


def test_the_best_has_a_copy_that_steps_in(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(StorageError, match="no such file"):
        checkpoints.load_best()
    checkpoints.save_best({"number": 7})
    assert checkpoints.load_best() == ({"number": 7}, [])
    damage_flip(checkpoints.best)
    state, complaints = checkpoints.load_best()
    assert state == {"number": 7}
    assert len(complaints) == 1
    assert "best.ckpt is damaged" in complaints[0]


def test_killed_between_the_two_moves(two):
    write_checkpoint({"number": 3}, two.folder / "next.ckpt")
    os.replace(two.last, two.previous)  # and then the process was gone
    assert two.load_last()[0]["number"] == 2


def test_killed_while_writing(two):
    half = two.folder / f".next.ckpt.{'0' * 32}"
    half.write_bytes(b"half a checkpoint")
    assert two.load_last()[0]["number"] == 2
    assert not half.exists()


def test_a_full_disk_leaves_what_was_there(two, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"could not be written: No space left on device. What was there is kept."):
        two.save_last({"number": 3})
    assert two.load_last()[0]["number"] == 2
    assert sorted(path.name for path in two.folder.iterdir()) == ["last.ckpt", "previous.ckpt"]


def test_opening_one_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("true",)

    write_checkpoint({"evil": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(Exception, match=r"weights_only|Weights only|Unsupported"):
        read_checkpoint(tmp_path / "evil.ckpt")


def put(path, payload):
    """A checkpoint whose hash is right, whatever is in it."""
    path.write_bytes(MARK + hashlib.sha256(payload).digest() + payload)
    return path


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def rezipped(value, name, content):
    """What `torch.save` makes, with one member replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(value))) as archive, zipfile.ZipFile(out, "w") as other:
        for info in archive.infolist():
            other.writestr(info.filename, content if info.filename.endswith(name) else archive.read(info))
    return out.getvalue()


class Calls:
    """Pickled, it calls a function when it is opened."""

    def __reduce__(self):
        return os.mkdir, ("called",)


PAYLOADS = {
    "pickle": pickle.dumps(Calls()),
    "a call in a state": saved({"a": Calls()}),
    "pickle in an archive": rezipped({}, "data.pkl", pickle.dumps(Calls())),
    "a pickle cut short": rezipped({"a": 1}, "data.pkl", b"\x80\x02}"),
    "a tensor without its values": rezipped({"a": torch.ones(3)}, "data/0", b""),
    "nothing": b"",
    "a list": saved([1]),
}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_right_hash_of_something_else(tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    path = put(tmp_path / "last.ckpt", PAYLOADS[payload])
    with pytest.raises(StorageError, match=r"last\.ckpt must hold the state of a run") as refused:
        read_checkpoint(path)
    assert os.listdir(tmp_path) == ["last.ckpt"]
    assert "Re-running `torch.load`" not in str(refused.value)  # torch's advice is to run the code
