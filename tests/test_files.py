"""Files are there whole or not at all, and JSON files hold JSON."""

import errno
import json
import math
import os
import stat
import threading
from pathlib import Path

import pytest

from metacal.errors import StorageError
from metacal.files import read_json, write_json, write_text, write_whole


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_numbers_that_are_not_finite_become_null(tmp_path):
    write_json(tmp_path / "a.json", {"nll": math.inf, "each": [math.nan, 0.5], "pair": (-math.inf, 1), "none": None})
    found = strict((tmp_path / "a.json").read_text())
    assert found == {"nll": None, "each": [None, 0.5], "pair": [None, 1], "none": None}
    assert read_json(tmp_path / "a.json") == found


def test_what_earlier_versions_wrote_is_read(tmp_path):
    (tmp_path / "old.json").write_text('{"nll": Infinity, "ece": NaN}')
    found = read_json(tmp_path / "old.json")
    assert found["nll"] == math.inf
    assert math.isnan(found["ece"])


def test_a_value_that_is_no_json_leaves_what_was_there(tmp_path):
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert read_json(tmp_path / "a.json") == [1]
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_is_written_is_on_the_disk_and_so_is_its_name(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((place, place.read_text() if place.is_file() else sorted(os.listdir(place))))

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(tmp_path / "a.txt", "said")
    (temporary, text), folder = synced
    assert temporary.name.startswith(".a.txt.")
    assert text == "said"
    assert folder == (tmp_path, ["a.txt"])


def test_a_folder_in_its_place_is_told(tmp_path):
    with pytest.raises(StorageError, match=r"could not be written: Is a directory\."):
        write_json(tmp_path, [1])


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "a.json")
    for number in (1, 2):
        write_json(tmp_path / "link.json", [number])
        assert (tmp_path / "link.json").is_symlink()
        assert read_json(tmp_path / "there" / "a.json") == [number]


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    heard = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_text(tmp_path / "pipe", "said")
    reader.join()
    assert heard == ["said"]
    assert (tmp_path / "pipe").is_fifo()


def test_permissions_stay(tmp_path):
    path = tmp_path / "figures.json"
    old = os.umask(0o027)
    try:
        write_json(path, {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640, "a new file has those that the user gives to new files"
    finally:
        os.umask(old)
    path.chmod(0o600)
    write_json(path, {"ece": 0.1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("cause", [errno.EACCES, errno.EBUSY])
def test_what_cannot_be_replaced_is_written_to(tmp_path, monkeypatch, cause):
    def refuse(*_):
        raise OSError(cause, os.strerror(cause))

    path = tmp_path / "mounted.json"
    path.write_text("{}")
    monkeypatch.setattr(os, "replace", refuse)
    write_json(path, {"ece": 0.1})
    assert read_json(path) == {"ece": 0.1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(StorageError, match=r"new\.json could not be written: .* is kept"):
        write_json(tmp_path / "new.json", {})
    with pytest.raises(StorageError) as told:
        write_whole(path, refuse)
    assert "kept" not in str(told.value), "it was written to, and may be cut off"
    assert list(tmp_path.iterdir()) == [path]


def test_what_comes_but_once_is_asked_for_once(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    path, parts = tmp_path / "mounted.csv", iter([b"a,", b"b"])
    path.write_text("old")
    monkeypatch.setattr(os, "replace", refuse)
    write_whole(path, lambda file: file.writelines(parts))
    assert path.read_text() == "a,b"
    assert list(tmp_path.iterdir()) == [path]
