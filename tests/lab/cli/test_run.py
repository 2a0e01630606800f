"""``metacal run``: the paper's tables from the command line."""

import csv
import json
import signal

import pytest

from metacal.files import write_json
from metacal.lab.cli.run import fit_draws
from metacal.lab.paper import EXHIBITS
from metacal.lab.paper.exhibits import Draw
from metacal.lab.paper.simulated import draw_file
from metacal.lab.training import Stopped, StopRequest
from metacal.lab.training.read_run import read_run


@pytest.mark.slow
def test_everything_under_smoke(metacal, tmp_path):
    words = [
        "--all",
        "--scale",
        "smoke",
        "--seeds",
        "0",
        "--store",
        str(tmp_path / "runs"),
        "-o",
        str(tmp_path / "out"),
    ]
    status, output, errors = metacal("run", *words, "-o", str(tmp_path / "out"))
    assert status == 0, errors
    for exhibit in EXHIBITS.values():
        assert exhibit.heading in output, exhibit.name
        assert (tmp_path / "out" / f"{exhibit.name}.json").exists()
    assert (tmp_path / "out" / "report.html").stat().st_size < 6_000_000
    status, output, _ = metacal("show", "main-ece", "--scale", "smoke", "--store", str(tmp_path / "runs"))
    assert status == 0
    assert "7 complete" in output
    assert "seconds" in output


def test_a_part_of_a_table_from_nothing_to_files(metacal, tmp_path):
    words = ["hyperparameters", "--scale", "smoke", "--rows", "cifar-10/", "--methods", "ce,mc", "--seeds", "0"]
    store = ["--store", str(tmp_path / "runs")]
    status, output, errors = metacal("run", *words, *store, "-o", str(tmp_path / "tables"))
    assert status == 0, errors
    assert "[smoke scale:" in output
    assert "4.23 ± 0.15" in output
    with (tmp_path / "tables" / "hyperparameters.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {(line["method"], line["metric"], line["seeds"]) for line in lines} == {
        (method, metric, "1") for method in ("CE", "MC") for metric in ("ece_percent", "error_percent")
    }
    about = json.loads((tmp_path / "tables" / "about.json").read_text())
    assert about["seeds"] == [0]
    assert about["scale"] == "smoke"
    assert len(about["runs"]) == 2
    assert about["torch"]
    assert about["command"].startswith("metacal run hyperparameters")
    assert about["train_seconds"] > 0
    for suffix in ("md", "json"):
        assert (tmp_path / "tables" / f"hyperparameters.{suffix}").stat().st_size > 100
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/scores.json"))
    assert metacal("run", *words, *store)[0] == 0
    assert sorted(path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/scores.json")) == before
    status, output, _ = metacal("show", "hyperparameters", "--scale", "smoke", *store)
    assert status == 0
    assert "2 complete" in output
    assert metacal("validate", *store)[0] == 0
    status, output, _ = metacal("run", *words[:-1], "0,1", *store, "epochs=1")
    assert status == 0
    assert "[smoke scale, epochs=1: reduced or changed" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "tabel-1"], "nearest: table-1"),
        (["run"], "`NAME` or --all must be given"),
        (["run", "main-ece", "--all"], "but not both"),
        (["run", "main-ece", "--rows", "cifar-11"], "'cifar-11', nearest: cifar-1"),
        (["run", "main-ece", "--methods", "mcc"], "'mcc', nearest: mc"),
        (["run", "main-ece", "--seeds", "x"], "`--seeds` must be integers"),
        (["run", "main-ece", "--scale", "tiny"], "`scale` must be one of full, cpu, smoke, got 'tiny'"),
        (["run", "synthetic", "--scale", "tiny"], "`scale` must be one of full, cpu, smoke, got 'tiny'"),
        (["run", "main-ece", "--engine", "slurm"], "`--engine` must be one of 'local', 'ray', got 'slurm'"),
        (["run", "main-ece", "method=ce"], "`method` must not be set for a table"),
        (["run", "main-ece", "epoch=3"], "unknown key 'epoch', nearest: epochs"),
        (["show", "main_ec"], "nearest: main-ece"),
        (["run", "synthetic", "epochs=3"], "`epochs` must not be set: what was selected has no runs"),
        (["run", "synthetic", "--rows", "cifar-10"], "`--rows` must not be given: the selection has none"),
        (["run", "main-ece", "ablation", "--rows", "svhn", "--methods", "m4"], "must match a table or figure together"),
    ],
)
def test_bad_input(metacal, words, message):
    status, _, errors = metacal(*words)
    assert status == 2, errors
    assert message in errors
    assert errors.count("\n") == 1


def test_a_store_that_cannot_be_written(metacal, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    words = ["hyperparameters", "--scale", "smoke", "--rows", "cifar-10/", "--methods", "ce", "--seeds", "0"]
    status, _, errors = metacal("run", *words, "--store", str(tmp_path / "file"))
    assert status == 1
    assert "could not be written" in errors


SMALL = ["generalisation-gap", "--scale", "smoke", "--seeds", "0"]


def test_a_store_is_filled_and_read(metacal, tmp_path):
    place = ["--store", str(tmp_path / "there")]
    status, output, errors = metacal("run", *SMALL, *place, "-o", str(tmp_path / "out"))
    assert status == 0, errors
    assert "1 of 1 runs" in output
    started, ended = errors.splitlines()  # a line each where the output is not a terminal
    assert started == "digits-mlp-ce-seed0: started"
    assert ended.startswith("1/1  digits-mlp-ce-seed0: error ")
    assert len(list((tmp_path / "there").glob("*/scores.json"))) == 1
    status, output, errors = metacal("run", *SMALL, *place)
    assert status == 0
    assert "1 of 1 runs" in output
    assert "ECE" not in errors
    status, output, _ = metacal("show", *SMALL[:3], *place)
    assert "1 complete" in output
    assert f"--store {tmp_path}/there" in output
    status, output, _ = metacal("validate", *place)
    assert status == 0
    assert f"1 runs in {tmp_path}/there, 1 complete; 0 problems." in output


def test_missing_draws_are_fitted_until_asked_to_stop(tmp_path):
    stop, fitted = StopRequest(), []
    wanted = [Draw(20, seed, 100) for seed in range(4)]
    write_json(draw_file(tmp_path, wanted[0]), {"size": 20, "methods": {}, "points": []})

    def fit(size, seed, test_points):
        fitted.append(seed)
        stop.signal = signal.SIGTERM if seed == 2 else None
        return {"size": size, "methods": {}, "points": []}

    with pytest.raises(Stopped):
        fit_draws(wanted, tmp_path, stop, fit=fit)
    assert fitted == [1, 2]
    assert draw_file(tmp_path, wanted[2]).exists()
    assert not draw_file(tmp_path, wanted[3]).exists()


def test_both_cross_domain_tables_from_one_word(metacal, tmp_path):
    words = ("--scale", "smoke", "--rows", "cifar-10-c", "--methods", "ce,mc", "--seeds", "0")
    status, output, errors = metacal(
        "run", "cross-domain", *words, "--store", tmp_path / "runs", "-o", tmp_path / "tables"
    )
    assert status == 0, errors
    assert "15.55 ± 0.32" in output
    assert "Worst case" in output
    assert "10.60 ± 0.05" in output
    assert len(list((tmp_path / "runs").glob("*/scores.json"))) == 2
    view = read_run(next((tmp_path / "runs").glob("*-ce-*")))
    assert view.dataset == "digits (tested on 22 domains, generated)"
    data = json.loads((tmp_path / "tables" / "cross-domain-ece.json").read_text())
    assert "Test images of the domains: generated." in data["note"]
    average, worst = ([cell["values"][0] for cell in line] for line in data["cells"])
    assert all(low <= high for low, high in zip(average, worst, strict=True))
    status, output, _ = metacal("show", "cross-domain", "--scale", "smoke", "--store", tmp_path / "runs")
    assert status == 0
    assert "Table 9" in output
    assert "Table 10" in output
