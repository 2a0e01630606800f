"""Runs that were really trained, as a report shows them."""

import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.training import RunFolder, build_spec, run
from metacal.lab.training.read_run import read_run
from metacal.reporting import prepare_report, render_page

SETTINGS = {
    "dataset": "digits",
    "epochs": 3,
    "milestones": [2],
    "train_size": 128,
    "batch_size": 16,
    "model_options": {"hidden": [16]},
    "meta_every": 1,
}


def trained(folder, method):
    run(build_spec({**SETTINGS, "method": method}), RunFolder(folder))
    return read_run(folder)


def test_smoothing(tmp_path):
    view = trained(tmp_path, "mc")
    assert view.num_epochs == 3
    assert view.strengths.shape == (3, 10)
    assert view.smoothing.shape == (10, 10)
    assert torch.equal(view.smoothing.diagonal(), torch.zeros(10, dtype=torch.float64))
    best = RunFolder(tmp_path).read_scores()["best_epoch"]
    given = view.smoothing.sum(1)
    strengths = view.strengths[best - 1]
    assert (
        (given - strengths).abs() <= 1e-3 * strengths + 1e-6
    ).sum() >= 5  # a row without a distribution gives nothing
    assert "What was learned" in render_page(prepare_report([view], "Report", num_resamples=10), "1")


def test_the_librarys_own_method_shows_its_mean_strength(tmp_path):
    view = trained(tmp_path, "meta")
    assert view.strengths.shape == (3, 1)
    assert view.strengths[:, 0].tolist() == view.epochs["strength"]


def test_l2(tmp_path):
    view = trained(tmp_path, "mc-l2")
    assert view.strengths is None
    assert view.l2["weight"].shape == (10, 16)
    assert view.l2["bias"].shape == (10,)


def test_plain(tmp_path):
    view = trained(tmp_path, "ce")
    assert view.strengths is None
    assert view.smoothing is None
    assert view.l2 is None
    assert view.epochs["lr"] == [0.05, 0.05, pytest.approx(0.005)]


def test_folders_that_hold_no_run(tmp_path):
    with pytest.raises(InvalidValueError, match="got a folder without a run"):
        read_run(tmp_path)
    RunFolder(tmp_path).write_spec(build_spec(SETTINGS), {})
    with pytest.raises(InvalidValueError, match=r"unfinished one; continue it with: metacal train .* --resume"):
        read_run(tmp_path)
