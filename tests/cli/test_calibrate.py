"""``metacal calibrate`` as a shell meets it: fit on one file, write another, choose and say by what."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from tests.evaluation.files import NAMES, columns, draw, write

from metacal.evaluation import read_predictions, score_predictions
from metacal.posthoc import CALIBRATORS, Calibrator, TemperatureScaling


@pytest.fixture
def files(tmp_path):
    """Logits of an over-confident model: to fit on, and to calibrate."""
    made = []
    for seed, name in enumerate(("val", "test")):
        logits, _, targets = draw(n=900, seed=seed)
        made.append(write(tmp_path / f"{name}.parquet", columns(3.0 * logits, targets, "logit_")))
    return made


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".csv", ".npz"])
def test_temperature(metacal, files, tmp_path, suffix):
    out = tmp_path / f"calibrated{suffix}"
    status, output, errors = metacal(
        "calibrate", files[1], "--method", "temperature", "--fit-on", files[0], "--out", out, "--json", tmp_path / "j"
    )
    assert (status, errors) == (0, "")
    about = json.loads((tmp_path / "j").read_text())
    temperature = about["fit"]["temperature"]
    assert temperature == pytest.approx(3.0, rel=0.1)
    assert about["fit"]["fit_report"]["converged"]
    assert re.search(r"Fitted temperature: T = \S+ on 900 samples; predicted classes stay\.", output)
    before, after = read_predictions(files[1]), read_predictions(out)
    assert not after.is_logits
    assert after.class_names == NAMES
    assert torch.equal(after.targets, before.targets)
    expected = torch.softmax(before.logits.double() / temperature, 1)
    np.testing.assert_allclose(after.probs.numpy(), expected.numpy(), atol=1e-5)
    assert torch.equal(after.probs.argmax(1), before.logits.argmax(1))
    scores = [score_predictions(probs=p.probs, targets=p.targets).ece for p in (before, after)]
    assert scores[1] < scores[0] / 2


def test_a_wrong_method_lists_the_calibrators(metacal, files, tmp_path):
    words = ("--method", "platt", "--fit-on", files[0], "--out", tmp_path / "out.csv")
    status, _, errors = metacal("calibrate", files[1], *words)
    assert status == 2
    for name in (*CALIBRATORS, "auto", "platt"):
        assert f"'{name}'" in errors


def test_auto_prints_the_table_it_chose_by(metacal, files, tmp_path):
    out = tmp_path / "calibrated.parquet"
    status, output, _ = metacal(
        "calibrate", files[1], "--method", "auto", "--fit-on", files[0], "--out", out, "--json", tmp_path / "j"
    )
    assert status == 0
    assert "NLL by five-fold cross-validation on the fitting file" in output
    fit = json.loads((tmp_path / "j").read_text())["fit"]
    tried = {trial["name"]: trial["nll"] for trial in fit["trials"] if trial["nll"] is not None}
    level = [t["name"] for t in fit["trials"] if t["behind"] is not None and t["behind"] <= t["behind_error"]]
    assert fit["method"] == level[0]
    assert "none" in tried
    assert re.search(rf"^│ {fit['method']}\s+│ {tried[fit['method']]:.5f} │ .* chosen", output, re.M)
    assert f"Fitted {fit['method']}" in output
    assert read_predictions(out).num_classes == 3


def test_figures_before_and_after(metacal, files, tmp_path):
    """Those of the file itself, recomputed from what was written; those of held-out folds where it has no targets."""
    out, about = tmp_path / "out.parquet", tmp_path / "j"
    status, output, _ = metacal("calibrate", files[1], "--fit-on", files[0], "--out", out, "--json", about)
    assert status == 0
    effect = json.loads(about.read_text())["effect"]
    for name, path in (("before", files[1]), ("after", out)):
        said = read_predictions(path)
        found = score_predictions(probs=said.probs, targets=said.targets)
        assert effect[name]["ece"] == pytest.approx(found.ece, abs=1e-6)
        assert effect[name]["nll"] == pytest.approx(found.nll, abs=1e-5)
    change = next(each for each in effect["differences"] if each["figure"] == "nll")
    assert change["value"] == pytest.approx(effect["after"]["nll"] - effect["before"]["nll"], abs=1e-5)
    assert change["is_beyond_noise"] and change["high"] < 0.0
    assert re.search(rf"│ NLL\s+│ {effect['before']['nll']:.4f} \(.* to .*│ {effect['after']['nll']:.4f} \(", output)
    table = columns(3.0 * draw(n=900, seed=1)[0], draw(n=900, seed=1)[2], "logit_")
    del table["label"]
    bare = write(tmp_path / "bare.parquet", table)
    status, output, _ = metacal("calibrate", bare, "--fit-on", files[0], "--out", out, "--json", about)
    assert status == 0
    found = json.loads(about.read_text())
    assert "effect" not in found and found["held_out"]["rows"] == 900
    assert found["held_out"]["after"]["nll"] < found["held_out"]["before"]["nll"]
    assert "Held-out folds of the fitting file, 900 rows" in output


def test_save_and_use_without_targets(metacal, files, tmp_path):
    saved, first, second = (tmp_path / name for name in ("t.safetensors", "a.csv", "b.csv"))
    assert metacal("calibrate", files[1], "--fit-on", files[0], "--out", first, "--save", saved)[0] == 0
    assert isinstance(Calibrator.load(saved), TemperatureScaling)
    table = columns(3.0 * draw(n=900, seed=1)[0], draw(n=900, seed=1)[2], "logit_")
    del table["label"]
    bare = write(tmp_path / "bare.parquet", table)
    status, _, errors = metacal("calibrate", bare, "--use", saved, "--out", second)
    assert (status, errors) == (0, "")
    lines = [path.read_text().splitlines() for path in (first, second)]
    assert lines[1][0] == '"prob_cat","prob_dog","prob_eel"'
    assert [line.rsplit(",", 1)[0] for line in lines[0][1:4]] == lines[1][1:4]


def test_a_degenerate_fit_warns(metacal, tmp_path):
    logits = torch.eye(3).repeat(20, 1) * 5
    path = write(tmp_path / "easy.csv", columns(logits, torch.arange(3).repeat(20), "logit_"))
    status, output, errors = metacal("calibrate", path, "--fit-on", path, "--out", tmp_path / "out.csv")
    assert status == 0
    assert "warning: The temperature is 0.001, its lower bound" in errors
    assert "T = 0.001" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "out.parquet"], "Exactly one of `--fit-on` and `--use` must be given"),
        (["--fit-on", "VAL", "--use", "x", "--out", "out.parquet"], "Exactly one of `--fit-on` and `--use`"),
        (["--fit-on", "VAL", "--out", "out.xlsx"], "`--out` must end in one of .parquet, .arrow"),
        (["--fit-on", "VAL", "--out", "TEST"], "`--out` must be another file than the one that is read"),
        (["--fit-on", "VAL", "--out", "no/out.csv"], "`--out` must name a file in a folder that exists"),
        (["--fit-on", "VAL", "--out", "out.csv", "--method", "magic"], "`--method` must be one of 'temperature'"),
        (["--fit-on", "OTHER", "--out", "out.csv"], "has 3 classes, but the calibrator is for 2; use one that fits."),
        (["--fit-on", "nowhere.csv", "--out", "out.csv"], "nowhere.csv: no such file"),
        (["--use", "nowhere.st", "--out", "out.csv"], "must name a calibrator's safetensors file"),
    ],
)
def test_bad_input(metacal, files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    logits, _, targets = draw(num_classes=2)
    other = write(tmp_path / "two.csv", columns(logits, targets, "logit_", names=NAMES[:2]))
    places = {"VAL": files[0], "TEST": files[1], "OTHER": other}
    status, _, errors = metacal("calibrate", files[1], *(places.get(word, word) for word in arguments))
    assert status == 2
    assert errors.count("\n") == 1
    assert message in errors
    assert not list(tmp_path.glob("out.*"))


def test_classes_in_another_order_are_refused(metacal, files, tmp_path):
    logits, _, targets = draw()
    other = write(tmp_path / "order.csv", columns(logits, targets, "logit_", names=("dog", "cat", "eel")))
    status, _, errors = metacal("calibrate", files[1], "--fit-on", other, "--out", tmp_path / "out.csv")
    assert status == 2
    assert "`--fit-on` must have the classes of" in errors


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("dog", "cat", "eel"), [], "whose class 0 is cat, not dog; name the classes of the file with `--class-names`"),
        (("cat", "dog", "fox"), [], "got {saved}, whose class 2 is eel, not fox;"),
        (("0", "1", "2"), [], "whose class 0 is cat, not 0;"),
        (("0", "1", "2"), ["--class-names", "cat,dog,eel"], None),
        (("0", "1", "2"), ["--same-classes"], None),
        (("dog", "cat", "eel"), ["--class-names", "cat,dog,eel"], None),
        (("dog", "cat", "eel"), ["--same-classes"], None),
    ],
)
def test_a_saved_calibrator_wants_its_own_classes_in_their_order(metacal, files, tmp_path, names, options, message):
    saved, out = tmp_path / "v.safetensors", tmp_path / "out.csv"
    metacal("calibrate", files[1], "--method", "vector", "--fit-on", files[0], "--out", out, "--save", saved)
    assert Calibrator.load(saved).class_names_ == NAMES
    out.unlink()
    logits, _, targets = draw()
    table = columns(logits, targets, "logit_", names=names)
    del table["label"]
    other = write(tmp_path / "other.csv", table)
    status, _, errors = metacal("calibrate", other, "--use", saved, "--out", out, *options)
    if message is None:
        assert (status, errors) == (0, "")
        assert out.exists()
    else:
        assert status == 2
        assert errors.count("\n") == 1
        assert message.format(saved=saved) in errors
        assert not out.exists()


def test_a_calibrator_of_numbered_classes_does_not_know_named_ones(metacal, tmp_path):
    saved, out = tmp_path / "v.safetensors", tmp_path / "out.csv"
    logits, _, targets = draw(n=600)
    path = write(tmp_path / "val.csv", columns(2.0 * logits, targets, "logit_", names=("0", "1", "2"), as_names=False))
    named = write(tmp_path / "named.csv", columns(2.0 * logits, targets, "logit_"))
    metacal("calibrate", path, "--method", "vector", "--fit-on", path, "--out", out, "--save", saved)
    expected = out.read_text().splitlines()[1].split(",")[:3]
    status, _, errors = metacal("calibrate", named, "--use", saved, "--out", out)
    assert status == 2
    assert "whose class 0 is 0, not cat" in errors
    assert "`--same-classes` if they are" in errors
    assert metacal("calibrate", named, "--use", saved, "--out", out, "--same-classes")[0] == 0
    header, first, *_ = out.read_text().splitlines()
    assert header == '"prob_cat","prob_dog","prob_eel","target"'
    assert first.split(",")[:3] == expected


def test_numbers_in_another_order_are_other_classes(metacal, tmp_path):
    saved, out = tmp_path / "v.safetensors", tmp_path / "out.csv"
    logits, _, targets = draw(n=600)
    path = write(tmp_path / "val.csv", columns(2.0 * logits, targets, "logit_", names=("0", "1", "2"), as_names=False))
    assert metacal("calibrate", path, "--fit-on", path, "--out", out, "--save", saved)[0] == 0
    status, _, errors = metacal("calibrate", path, "--use", saved, "--out", out, "--class-names", "1,0,2")
    assert status == 2
    assert f"got {saved}, whose class 0 is 0, not 1" in errors


def test_a_bad_row_leaves_no_file_behind(metacal, files, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("logit_cat,logit_dog,logit_eel\n0,0,0\n0,nan,0\n")
    status, _, errors = metacal("calibrate", path, "--fit-on", files[0], "--out", tmp_path / "out.csv")
    assert status == 2
    assert "bad.csv: row 2: column logit_dog holds nan" in errors
    assert not list(tmp_path.glob("out.csv*"))


def test_fitting_on_the_file_itself_is_remarked_on(metacal, files, tmp_path):
    status, _, errors = metacal("calibrate", files[0], "--fit-on", files[0], "--out", tmp_path / "out.csv")
    assert status == 0
    assert errors.startswith(f"warning: {files[0]} is what the calibrator is fitted on too")


def test_too_few_samples_to_choose_by_name_the_file(metacal, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("p_a,p_b,label\n0.5,0.5,a\n0.2,0.8,b\n", encoding="utf-8")
    status, _, errors = metacal("calibrate", path, "--method", "auto", "--fit-on", path, "--out", tmp_path / "out.csv")
    assert status == 2
    assert f"error: {path}: `targets` must hold at least 10 samples to choose by, got 2." in errors


def rows_of(path):
    """Rows of a written table as dictionaries, with text where a CSV has it."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return pa.csv.read_csv(path).to_pylist() if path.suffix == ".csv" else pa.ipc.open_file(path).read_all().to_pylist()


@pytest.mark.parametrize("out_suffix", [".csv", ".parquet", ".arrow", ".jsonl"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".jsonl"])
def test_other_columns_are_kept(metacal, tmp_path, monkeypatch, suffix, out_suffix):
    """In their order and with their rows; probabilities take the place of the scores, those of the same classes too."""
    monkeypatch.setattr("metacal.evaluation.other_columns.AT_ONCE", 7)
    logits, probs, targets = draw(n=300, seed=2)
    ids = [f"{7 * row % 300:03d}" for row in range(300)]
    others = {"id": ids, "weight": np.arange(300) / 4, "country": ["fr", "de"] * 150, "prob_cat": probs[:, 0].numpy()}
    path = write(tmp_path / f"test{suffix}", others | columns(3.0 * logits, targets, "logit_"))
    out = tmp_path / f"out{out_suffix}"
    status, output, errors = metacal("calibrate", path, "--logits", "logit_*", "--fit-on", path, "--out", out)
    assert (status, errors.count("\n")) == (0, 1)  # it says that both files are the same
    rows = rows_of(out)
    assert list(rows[0]) == ["id", "weight", "country", "prob_cat", "prob_dog", "prob_eel", "target"]
    if out_suffix != ".csv":
        assert [row["id"] for row in rows] == ids
    assert [float(row["weight"]) for row in rows] == others["weight"].tolist()
    assert [row["country"] for row in rows] == others["country"]
    assert [row["target"] for row in rows] == [NAMES[target] for target in targets]
    best = [max(NAMES, key=lambda name, row=row: row[f"prob_{name}"]) for row in rows]
    assert best == [NAMES[number] for number in logits.argmax(dim=1)]
    status, output, _ = metacal("evaluate", out, "--by", "country")
    assert status == 0
    assert "300 samples, 3 classes" in output


@pytest.mark.filterwarnings("default::metacal.errors.MetacalWarning")
def test_columns_of_every_type_are_kept_where_a_format_has_them(metacal, files, tmp_path):
    logits, _, targets = draw(n=40, seed=2)
    days = pa.array(range(40), pa.date32())
    others = {
        "": range(40),
        "day": days,
        "kind": pa.array(["a", None] * 20).dictionary_encode(),
        "embedding": [[float(row), 0.5] for row in range(40)],
        "about": [{"lang": "en", "label": "x"}] * 40,
        "image": [b"\x00\xff"] * 40,
    }
    path = write(tmp_path / "test.parquet", others | columns(logits, targets, "logit_"))
    words = ("calibrate", path, "--fit-on", files[0], "--out")
    assert metacal(*words, tmp_path / "out.parquet")[0] == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("day").to_pylist() == days.to_pylist()
    assert table.column("kind").to_pylist() == ["a", None] * 20
    assert table.column("embedding").to_pylist() == others["embedding"]
    assert table.column("about.lang").to_pylist() == ["en"] * 40
    assert table.column("image").to_pylist() == others["image"]
    status, _, errors = metacal(*words, tmp_path / "out.csv")
    assert status == 0
    assert "warning: .csv cannot hold embedding, image: they are left out; write .parquet." in errors
    assert rows_of(tmp_path / "out.csv")[1][""] == 1
    assert metacal(*words, tmp_path / "out.npz")[0] == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["embedding"].tolist() == others["embedding"]
        assert arrays["kind"].tolist() == ["a", ""] * 20
        assert arrays["day"].dtype == "datetime64[D]"
        assert "image" not in arrays


def test_another_column_called_target_is_kept(metacal, tmp_path):
    _, probs, targets = draw()
    table = columns(probs, targets, target="truth") | {"target": np.arange(60)}
    path, out = write(tmp_path / "said.csv", table), tmp_path / "out.csv"
    metacal("calibrate", path, "--fit-on", path, "--target", "truth", "--out", out)
    found = pa.csv.read_csv(out)
    assert found["target"].to_pylist() == list(range(60))
    assert found["truth"].to_pylist() == table["truth"]


def test_arrays_of_the_same_length_are_kept(metacal, tmp_path):
    logits, _, targets = draw(n=40)
    others = {"id": np.arange(40), "name": np.array(["a", "b"] * 20), "map": np.ones((40, 2, 3)), "loss": np.ones(3)}
    path = write(tmp_path / "test.npz", {"logits": logits.numpy(), "targets": targets.numpy()} | others)
    for suffix in (".npz", ".parquet"):
        status, _, _ = metacal("calibrate", path, "--fit-on", path, "--out", tmp_path / f"out{suffix}")
        assert status == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert sorted(arrays) == ["class_names", "id", "map", "name", "probs", "targets"]
        for name in ("id", "name", "map"):
            np.testing.assert_array_equal(arrays[name], others[name])
        assert arrays["id"].dtype == np.int64
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "name", "map", "prob_0", "prob_1", "prob_2", "target"]
    assert table.column("map").to_pylist() == others["map"].tolist()


@pytest.mark.filterwarnings("default::metacal.errors.MetacalWarning")
def test_arrays_that_no_other_format_has_are_left_out(metacal, tmp_path):
    logits, _, targets = draw(n=40)
    others = {
        "wave": np.ones(40, dtype=complex),
        "none": np.ones((40, 0)),
        "pair": np.zeros(40, dtype=[("a", "i4"), ("b", "f4")]),
        "number": np.arange(40, dtype=">i4"),
    }
    path = write(tmp_path / "test.npz", {"logits": logits.numpy(), "targets": targets.numpy()} | others)
    status, _, errors = metacal("calibrate", path, "--fit-on", path, "--out", tmp_path / "out.npz")
    assert status == 0
    assert "test.npz: wave, none, pair cannot be copied" in errors
    assert metacal("calibrate", path, "--fit-on", path, "--out", tmp_path / "out.parquet")[0] == 0
    with np.load(tmp_path / "out.npz") as arrays:
        assert sorted(arrays) == ["class_names", "number", "probs", "targets"]
        np.testing.assert_array_equal(arrays["number"], others["number"])
    assert pq.read_table(tmp_path / "out.parquet").column("number").to_pylist() == list(range(40))


@pytest.mark.filterwarnings("default::metacal.errors.MetacalWarning")
def test_an_npz_takes_columns_of_any_name(metacal, tmp_path):
    logits, _, targets = draw(n=40)
    others = {"file": [f"{row}.png" for row in range(40)], "allow_pickle": range(40), "class_names": ["x"] * 40}
    path = write(tmp_path / "test.parquet", others | columns(logits, targets, "logit_"))
    out = tmp_path / "out.npz"
    status, _, errors = metacal("calibrate", path, "--fit-on", path, "--out", out)
    assert status == 0
    assert ".npz cannot hold class_names" in errors
    with np.load(out) as arrays:
        assert arrays["file"].tolist() == others["file"]
        assert arrays["allow_pickle"].tolist() == list(range(40))
    assert read_predictions(out).class_names == NAMES


def test_json_values_that_a_format_may_not_hold_become_text(metacal, tmp_path):
    _, probs, targets = draw(n=20)
    rows = [{"probs": row.tolist(), "label": int(target)} for row, target in zip(probs, targets, strict=True)]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row | {"calls": [{}], "text": "\ud800"}) + "\n" for row in rows))
    status, _, errors = metacal("calibrate", path, "--fit-on", path, "--out", tmp_path / "out.parquet")
    assert status == 0, errors
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("calls").to_pylist() == ["[{}]"] * 20
    assert table.column("text").to_pylist() == ['"\\ud800"'] * 20
