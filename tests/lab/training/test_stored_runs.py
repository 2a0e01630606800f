"""Runs that version 0.1 has stored, at commit a1e3c7c: they open, resume and score as they did there.

Each of `stored_runs/` is a run of three epochs on a few digits; of the interrupted ones the second epoch is half done.
Spare copies of checkpoints were left out.
"""

import shutil
from pathlib import Path

import pytest
import torch

from metacal.lab.training import RunFolder, run
from metacal.lab.training.checkpoints import Checkpoints
from metacal.lab.training.read_run import read_run

STORED = Path(__file__).parent / "stored_runs"
HASHES = {"mc": "03bb6f8b3a2ae755", "meta": "332cc8968bdf7d8d"}
METHODS = pytest.mark.parametrize("method", HASHES)


@pytest.fixture
def take(tmp_path):
    """A copy of a stored run, to write in."""
    return lambda name: RunFolder(shutil.copytree(STORED / name, tmp_path / name))


@METHODS
@pytest.mark.parametrize("state", ["complete", "interrupted"])
def test_the_spec_of_a_stored_run_has_the_hash_it_had(method, state):
    assert RunFolder(STORED / f"{method}-{state}").read_spec().hash == HASHES[method]


@METHODS
def test_a_stored_run_opens_and_none_of_its_files_is_taken_for_damaged(method):
    folder = RunFolder(STORED / f"{method}-complete")
    assert folder.is_complete
    assert list(folder.damaged_files()) == []
    assert [row["epoch"] for row in folder.read_history()] == [1.0, 2.0, 3.0]
    assert len(folder.read_predictions("test").targets) == 359
    assert len(read_run(folder.path).epochs["val_ece"]) == 3


def as_named_now(figures):
    """What was called debiased_ece is an l2 error, and says so now."""
    return {{"debiased_ece": "debiased_ece_l2"}.get(name, name): value for name, value in figures.items()}


@METHODS
def test_a_complete_stored_run_is_read_and_not_run_again(method, take):
    folder = take(f"{method}-complete")
    before = folder.read_scores()
    assert run(folder.read_spec(), folder, resume=True) == before


@METHODS
def test_the_best_state_of_a_stored_run_scores_as_before(method, take):
    folder = take(f"{method}-complete")
    before, logits = folder.read_scores(), folder.read_predictions("test").logits
    (folder.path / "scores.json").unlink()
    after = run(folder.read_spec(), folder, resume=True)
    torch.testing.assert_close(folder.read_predictions("test").logits, logits)
    for part in ("test", "val"):
        assert after[part] == pytest.approx(as_named_now(before[part]), abs=1e-4)
    assert after["finish"]["temperature"] == pytest.approx(before["finish"]["temperature"])
    assert after["best_epoch"] == before["best_epoch"]


@METHODS
def test_an_interrupted_stored_run_resumes_to_where_it_would_have_come(method, take):
    folder, whole = take(f"{method}-interrupted"), RunFolder(STORED / f"{method}-complete")
    after, before = run(folder.read_spec(), folder, resume=True), whole.read_scores()
    for part in ("test", "val"):
        assert after[part] == pytest.approx(as_named_now(before[part]), abs=1e-4)
    for mine, theirs in zip(folder.read_history(), whole.read_history(), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    mine, theirs = (Checkpoints(each.checkpoints).load_last()[0] for each in (folder, whole))
    for name, value in theirs["model"].items():
        torch.testing.assert_close(mine["model"][name], value)
