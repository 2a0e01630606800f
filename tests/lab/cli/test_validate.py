"""``metacal validate``, and what other verbs say about damaged results."""

import pytest

from metacal.lab.cli.run import narrow
from metacal.lab.paper import EXHIBITS
from metacal.lab.paper.simulated import draw_file
from metacal.lab.training.run_folder import RunStore


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
    assert f"{runs.folder(other).path}: its scores belong to another spec." in output
    assert f"{place}/damaged/spec.json must hold JSON, got something else" in output


@pytest.mark.parametrize("contents", ["[]", "{}", "null", "{"])
def test_damaged_results_are_named(metacal, tmp_path, contents):
    (draw,) = EXHIBITS["synthetic"].plan("smoke").draws
    (spec,) = narrow([EXHIBITS["generalisation-gap"]], seeds=[0])[0].specs("smoke")
    runs = RunStore(tmp_path / "runs")
    runs.folder(spec).write_spec(spec, {})
    for path in (runs.folder(spec).path / "scores.json", draw_file(runs.root, draw)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(contents)
    store = ["--store", str(runs.root)]
    status, output, _ = metacal("validate", *store)
    assert status == 1
    assert "scores.json" in output
    assert "simulated" in output
    assert "2 problems" in output
    status, _, errors = metacal(
        "run", "main-ece", "--rows", "svhn", "--methods", "ce", "--scale", "smoke", "--seeds", "0", *store
    )
    assert status == 2
    assert "scores.json" in errors
    status, _, errors = metacal("run", "synthetic", "--scale", "smoke", *store)
    assert status == 2
    assert "simulated" in errors
