"""Calibrated probabilities are there whole or not at all, and nothing beside them is touched."""

import gc
import os
import stat

import pytest
import torch

from metacal.errors import InvalidFileError, InvalidValueError, StorageError
from metacal.evaluation import read_predictions
from metacal.evaluation.writing import SUFFIXES, write_predictions

PROBS = torch.tensor([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
TARGETS = torch.tensor([1, 0, 0])
NAMES = ("cat", "dog")


def batches():
    yield PROBS[:2], TARGETS[:2]
    yield PROBS[2:], TARGETS[2:]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_reads_back(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    for _ in range(2):  # the second replaces the first
        assert write_predictions(path, batches(), NAMES) == 3
    said = read_predictions(path)
    assert torch.equal(said.scores, PROBS.to(said.scores.dtype))
    assert said.class_names == NAMES
    assert torch.equal(said.targets, TARGETS)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_beside_links_and_permissions_stay(tmp_path, suffix):
    (tmp_path / "there").mkdir()
    place, link, beside = (tmp_path / name for name in (f"there/a{suffix}", f"out{suffix}", f"out{suffix}.unfinished"))
    place.write_text("old")
    place.chmod(0o600)
    link.symlink_to(place)
    beside.write_text("mine")
    write_predictions(link, batches(), NAMES)
    assert link.is_symlink()
    assert beside.read_text() == "mine"
    assert len(read_predictions(place)) == 3
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_bad_row_leaves_what_was_there(tmp_path, suffix):
    def cut_short():
        yield PROBS, TARGETS
        raise InvalidFileError("row 4")

    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    with pytest.raises(InvalidFileError, match="row 4"):
        write_predictions(path, cut_short(), NAMES)
    gc.collect()  # a writer that was left open would complain here
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_in_its_place_is_told(tmp_path):
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(StorageError, match=r"out\.csv could not be written: Is a directory\."):
        write_predictions(tmp_path / "out.csv", batches(), NAMES)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("formula", ['=HYPERLINK("http://x","y")', "+1+1", "-A1", "@SUM(A1)", "\t=1"])
def test_names_that_a_spreadsheet_would_run(tmp_path, suffix, formula):
    path = tmp_path / f"out{suffix}"
    write_predictions(path, batches(), ("cat", formula))
    said = read_predictions(path)
    assert said.class_names == ("cat", formula)
    assert torch.equal(said.targets, TARGETS)
    if suffix == ".csv":
        cells = [cell.strip('"') for line in path.read_text().splitlines()[1:] for cell in line.split(",")]
        assert {cells[2], cells[5]} == {"0", "1"}
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", " a", "a "])
def test_names_that_a_csv_would_not_give_back(name, tmp_path):
    probs, targets = torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1])
    with pytest.raises(InvalidValueError, match="`--out` must not be a CSV: a class name has a line break, or spaces"):
        write_predictions(tmp_path / "out.csv", [(probs, targets)], [name, "dog"])
    for place in (tmp_path / "out.parquet", tmp_path / "out.npz"):
        write_predictions(place, [(probs, targets)], [name, "dog"])
        back = read_predictions(place)
        assert back.class_names == (name, "dog")
        assert back.targets.tolist() == [0, 1]


def test_formulas_among_numbers_are_not_written_as_csv(tmp_path):
    with pytest.raises(InvalidValueError, match=r"must not be a CSV: a spreadsheet .* write \.parquet"):
        write_predictions(tmp_path / "out.csv", batches(), ("1", "=1+1"))
    assert write_predictions(tmp_path / "out.csv", batches(), ("-1", "1")) == 3
    assert read_predictions(tmp_path / "out.csv").class_names == ("-1", "1")
    assert os.listdir(tmp_path) == ["out.csv"]
