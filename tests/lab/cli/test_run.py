"""``metacal ls``, ``show``, ``run`` and ``validate``: the paper's tables from the command line."""

import csv
import json
import signal

import pytest

from metacal.lab.cli.exhibits import in_order, narrow
from metacal.lab.cli.run import fit_draws
from metacal.lab.paper import EXHIBITS
from metacal.lab.paper.exhibits import Draw
from metacal.lab.paper.simulated import DrawStore
from metacal.lab.training import Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore


def test_ls_names_every_table_and_figure(metacal, tmp_path):
    status, output, _ = metacal("ls", "--json", str(tmp_path / "list.json"))
    entries = json.loads((tmp_path / "list.json").read_text())
    assert status == 0 and all(entry["name"] in output for entry in entries)
    assert {entry["name"] for entry in entries} == set(EXHIBITS)


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
        assert exhibit.heading in output and (tmp_path / "out" / f"{exhibit.name}.json").exists(), exhibit.name
    assert (tmp_path / "out" / "report.html").stat().st_size < 6_000_000
    status, output, _ = metacal("show", "main-ece", "--scale", "smoke", "--store", str(tmp_path / "runs"))
    assert status == 0 and "7 complete" in output and "seconds" in output


def test_what_every_row_of_the_main_table_takes(metacal):
    status, output, errors = metacal("show", "main-ece", "--scale", "cpu")
    assert status == 0 and "the rest takes roughly" in output, errors


def test_a_name_for_several_and_what_the_rest_takes(metacal):
    status, output, _ = metacal("show", "interleaved", "--scale", "cpu")
    assert status == 0 and "Table 13" in output and "Table 14" in output and "the rest takes roughly" in output


def test_tables_and_figures_are_written_as_far_as_they_are(metacal, tmp_path):
    words = ["ablation", "generalisation-gap", "--scale", "smoke", "--store", str(tmp_path / "runs")]
    status, output, errors = metacal("show", *words, "-o", str(tmp_path / "out"))
    assert status == 0, errors
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{tmp_path / 'out' / 'report.html'}: open it in a browser." in output
    assert "Table 6" in page
    assert "nothing to draw yet" in page
    assert f"metacal run ablation --scale smoke --store {tmp_path / 'runs'}" in page
    assert json.loads((tmp_path / "out" / "ablation.json").read_text())["name"] == "ablation"
    assert (tmp_path / "out" / "generalisation-gap.json").exists()
    assert (tmp_path / "out" / "ablation.md").exists()
    assert json.loads((tmp_path / "out" / "about.json").read_text())["runs"] == []
    assert not (tmp_path / "runs").exists()  # nothing is run


def test_a_part_of_a_table_from_nothing_to_files(metacal, tmp_path):
    words = ["hyperparameters", "--scale", "smoke", "--rows", "cifar-10/", "--methods", "ce,mc", "--seeds", "0"]
    store = ["--store", str(tmp_path / "runs")]
    status, output, errors = metacal("run", *words, *store, "-o", str(tmp_path / "tables"))
    assert status == 0, errors
    assert "[smoke scale:" in output and "4.23 ± 0.15" in output
    with (tmp_path / "tables" / "hyperparameters.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {(line["method"], line["metric"], line["seeds"]) for line in lines} == {
        (method, metric, "1") for method in ("CE", "MC") for metric in ("ece_percent", "error_percent")
    }
    about = json.loads((tmp_path / "tables" / "about.json").read_text())
    assert about["seeds"] == [0] and about["scale"] == "smoke" and len(about["runs"]) == 2 and about["torch"]
    assert about["command"].startswith("metacal run hyperparameters") and about["train_seconds"] > 0
    for suffix in ("md", "tex", "json"):
        assert (tmp_path / "tables" / f"hyperparameters.{suffix}").stat().st_size > 100
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/scores.json"))
    assert metacal("run", *words, *store)[0] == 0
    assert sorted(path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/scores.json")) == before
    status, output, _ = metacal("show", "hyperparameters", "--scale", "smoke", *store)
    assert status == 0 and "2 complete" in output
    assert metacal("validate", *store)[0] == 0
    status, output, _ = metacal("run", *words[:-1], "0,1", *store, "epochs=1")
    assert status == 0 and "[smoke scale, epochs=1: reduced or changed" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "tabel-1"], "nearest: table-1"),
        (["run"], "`NAME` must be given, or --all"),
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
        (["ls", "--json", "/no/such/folder/list.json"], "`--json` must name a file in a folder that exists"),
        (["run", "synthetic", "epochs=3"], "`epochs` must not be set: nothing that was named has runs"),
        (["run", "synthetic", "--rows", "cifar-10"], "`--rows` must be left out: what was named has none"),
        (["run", "main-ece", "ablation", "--rows", "svhn", "--methods", "m4"], "no table or figure has together"),
    ],
)
def test_bad_input(metacal, words, message):
    status, _, errors = metacal(*words)
    assert status == 2 and message in errors and errors.count("\n") == 1, errors


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("cifar-10", {"cifar-10/resnet18", "cifar-10/resnet50"}),
        ("cifar-10/resnet18", {"cifar-10/resnet18"}),
        ("cifar-10/", {"cifar-10/resnet18", "cifar-10/resnet50"}),
        ("ResNet50", {"cifar-10/resnet50", "cifar-100/resnet50"}),
    ],
)
def test_rows_are_named_by_whole_words(rows, expected):
    (part,) = narrow([EXHIBITS["interleaved-ece"]], rows=[rows])
    assert {row.name for row in part.rows} == expected


def test_rows_across_domains_by_their_data_set():
    (part,) = narrow([EXHIBITS["cross-domain-ece"]], rows=["cifar-10"])
    assert [row.name for row in part.rows] == ["cifar-10-c/average", "cifar-10-c/worst-case"]


def test_what_is_asked_for_twice_is_there_once():
    table = EXHIBITS["main-ece"]
    assert narrow([table, table], seeds=[1, 1]) == narrow([table], seeds=[1])


@pytest.mark.parametrize(
    ("methods", "labels"),
    [
        (["ce"], ["CE"]),
        (["ce-equal-data", "MC"], ["CE, equal data", "MC"]),
        (["CE equal data"], ["CE, equal data"]),
    ],
)
def test_a_label_selects_its_column_alone(methods, labels):
    (part,) = narrow([EXHIBITS["equal-data"]], methods=methods)
    assert [column.label for column in part.columns] == labels


def test_a_method_no_column_is_called_after_selects_all_columns_of_it():
    (part,) = narrow([EXHIBITS["ablation"]], methods=["ce"])
    assert [column.label for column in part.columns] == ["M0: Vanilla CE [meta-loss -, loss CE]"]


def test_methods_by_what_stands_before_the_colon():
    (part,) = narrow([EXHIBITS["ablation"]], methods=["M1", "m5"])
    assert [column.settings["method"] for column in part.columns] == ["ce+dece", "mc"]


def test_the_simulated_study_has_no_rows_to_choose():
    names = [part.name for part in narrow(list(EXHIBITS.values()), rows=["svhn"])]
    assert "main-ece" in names and not {"ablation", "synthetic", "synthetic-sweep"} & set(names)


OWN = ("image-methods", "equal-data", "outer-step", "synthetic-sweep")


def test_the_order_is_the_papers():
    tags = [exhibit.tag for exhibit in in_order(EXHIBITS.values())]
    numbers = [*(f"table-{n}" for n in range(1, 16)), *(f"figure-{n}" for n in range(1, 11))]
    others = [exhibit.name for exhibit in EXHIBITS.values() if not exhibit.number]
    assert tags == [*numbers, *others]
    assert [name for name in others if name in OWN] == list(OWN)


def test_a_store_that_cannot_be_written(metacal, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    words = ["hyperparameters", "--scale", "smoke", "--rows", "cifar-10/", "--methods", "ce", "--seeds", "0"]
    status, _, errors = metacal("run", *words, "--store", str(tmp_path / "file"))
    assert status == 1 and "could not be written" in errors


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


def test_what_is_wrong_in_a_store_is_named(metacal, tmp_path):
    place = str(tmp_path / "there")
    status, output, _ = metacal("validate", "--store", place)
    assert status == 0
    assert f"0 runs in {place}, 0 complete; 0 problems." in output
    good, other = narrow([EXHIBITS["generalisation-gap"]], seeds=[0, 1])[0].specs("smoke")
    runs = RunStore(place)
    for spec in (good, other):
        runs.folder(spec).write_spec(spec, {})
        runs.folder(spec).write_scores({"spec": good.hash, "test": {}, "train_seconds": 1.0})
    (runs.root / "damaged").mkdir()
    (runs.root / "damaged" / "spec.json").write_text("{")
    (runs.root / "notes.txt").write_text("a file beside the runs")
    status, output, errors = metacal("validate", "--store", place)
    assert status == 1, errors
    assert f"3 runs in {place}, 2 complete; 2 problems." in output
    assert f"{runs.folder(other).path}: its scores are those of another spec." in output
    assert f"{place}/damaged/spec.json must hold JSON, got something else" in output


@pytest.mark.parametrize("words", [["validate"], ["run", *SMALL], ["show", *SMALL[:3]]])
def test_a_url_is_no_store(metacal, words):
    status, _, errors = metacal(*words, "--store", "s3://bucket/runs")
    assert status == 2
    assert "The store must be a folder, got 's3://bucket/runs'; mount what is at a URL, or copy it" in errors


def test_runs_of_another_version_are_named_and_not_used(metacal, tmp_path):
    old = tmp_path / "runs" / "digits-mlp-ce-seed0-00000000"
    old.mkdir(parents=True)
    (old / "spec.json").write_text('{"schema": 1, "hash": "0", "spec": {}}')
    status, _, errors = metacal("show", "generalisation-gap", "--store", f"{tmp_path}/runs")
    assert status == 0
    assert "1 runs in" in errors
    assert f"not used, {old.name} for one" in errors
    status, output, _ = metacal("validate", "--store", f"{tmp_path}/runs")
    assert status == 1
    assert "must be of schema 2, got 1" in output


@pytest.mark.parametrize("contents", ["[]", "{}", "null", "{"])
def test_damaged_results_are_named(metacal, tmp_path, contents):
    (draw,) = EXHIBITS["synthetic"].draws("smoke")
    (spec,) = narrow([EXHIBITS["generalisation-gap"]], seeds=[0])[0].specs("smoke")
    runs = RunStore(tmp_path / "runs")
    runs.folder(spec).write_spec(spec, {})
    for path in (runs.folder(spec).path / "scores.json", DrawStore(runs.root).path(draw)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(contents)
    store = ["--store", str(runs.root)]
    status, output, _ = metacal("validate", *store)
    assert status == 1 and "scores.json" in output and "simulated" in output and "2 problems" in output
    status, _, errors = metacal("run", "main-ece", "--rows", "svhn", "--methods", "ce", *SMALL[1:], *store)
    assert status == 2 and "scores.json" in errors
    status, _, errors = metacal("run", "synthetic", "--scale", "smoke", *store)
    assert status == 2 and "simulated" in errors


def test_missing_draws_are_fitted_until_asked_to_stop(tmp_path):
    stop, store, fitted = StopRequest(), DrawStore(tmp_path), []
    wanted = [Draw(20, seed, 100) for seed in range(4)]
    store.write(wanted[0], {"size": 20, "methods": {}, "points": []})

    def fit(size, seed, test_points):
        fitted.append(seed)
        stop.signal = signal.SIGTERM if seed == 2 else None
        return {"size": size, "methods": {}, "points": []}

    with pytest.raises(Stopped):
        fit_draws(wanted, store, stop, fit=fit)
    assert fitted == [1, 2]
    assert store.has(wanted[2])
    assert not store.has(wanted[3])
