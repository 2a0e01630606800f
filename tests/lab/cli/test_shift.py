"""``metacal shift``: from a run to heat maps."""

import json

import numpy as np
import pytest

from metacal.lab.data import load_dataset
from metacal.lab.data.domains import shifted_sets
from metacal.lab.training import RunFolder, build_spec, run
from metacal.lab.training.read_run import read_run
from metacal.reporting import prepare_report, render_page

SPEC = {"dataset": "digits", "epochs": 2, "milestones": [1], "train_size": 300, "model_options": {"hidden": [32]}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits-run"
    run(build_spec(SPEC), RunFolder(folder))
    return folder


def test_a_run_under_shift(metacal, trained, tmp_path):
    words = ("--size", 60, "--json", tmp_path / "s.json", "--figures", tmp_path / "f")
    status, output, errors = metacal("shift", trained, *words)
    assert status == 0, errors
    study = json.loads((tmp_path / "s.json").read_text())
    about = study.pop("about")
    assert about["seeds"] == [RunFolder(trained).read_spec().seed]
    assert about["wall_seconds"] > 0
    assert about["torch"]
    assert study["source"] == "generated"
    assert study["samples"] == 60
    assert len(study["domains"]) == 95
    assert study == RunFolder(trained).read_shifts()["corruptions"]
    eces = [each["ece"] for each in study["domains"]]
    assert study["average"]["ece"] == pytest.approx(np.mean(eces))
    assert study["worst"]["ece"] == max(eces)
    assert "jpeg_compression" in output
    assert "fitted on clean validation data" in output
    assert f"average {study['average']['ece']:.4f}" in output
    assert "(generated), 60 images per domain" in output
    assert {path.suffix for path in (tmp_path / "f").iterdir()} == {".png", ".svg"}
    report = prepare_report([read_run(trained)], num_resamples=10)
    (shift,) = report.subjects[0].run.shifts
    assert len(shift.corruptions) == 19
    assert shift.maps[0].worst == max(eces)
    assert max(max(row) for row in shift.maps[2].shades) == 10
    assert shift.hurt == sum(each["ece_after_temperature"] > each["ece"] for each in study["domains"])
    page = render_page(report)
    assert "Under shift: corruptions (generated)" in page
    assert 'class="heat-10"' in page
    assert "gaussian noise" in page


def test_heat_maps_for_a_place_that_is_no_folder(metacal, trained, tmp_path):
    (tmp_path / "file").write_text("")
    words = ("--size", 10, "--figures", tmp_path / "file")
    status, _, errors = metacal("shift", trained, *words)
    place = tmp_path / "file" / f"{trained.name}-corruptions.png"
    assert status == 2
    assert errors.startswith(f"error: {place} could not be written: ")
    assert errors.count("\n") == 1


def test_figures_are_those_of_the_best_checkpoint(metacal, trained):
    status, _, errors = metacal("shift", trained)
    assert status == 0, errors
    study = RunFolder(trained).read_shifts()["corruptions"]
    scores = RunFolder(trained).read_scores()
    assert study["clean"]["error"] == pytest.approx(1 - scores["test"]["accuracy"])
    assert study["clean"]["ece"] == pytest.approx(scores["test"]["ece"])
    assert study["samples"] == len(next(iter(shifted_sets(load_dataset("digits"), [("fog", 1)]))))


def test_json_in_a_folder_that_does_not_exist(metacal, trained):
    status, _, errors = metacal("shift", trained, "--json", "no/such/folder/s.json")
    assert status == 2
    assert "a file in a folder that exists" in errors


def test_shift_is_of_complete_runs(metacal, tmp_path):
    assert "must be the folder of a complete run" in metacal("shift", tmp_path)[2]


def test_several_runs_are_checked_before_the_first_is_measured(metacal, trained, tmp_path):
    status, output, errors = metacal("shift", trained, tmp_path)
    assert status == 2
    assert output == ""
    assert f"got {tmp_path}" in errors
