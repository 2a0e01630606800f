"""``metacal evaluate`` as a shell meets it: table, JSON, several files, gates with exit status 0 and 1."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.evaluation.files import NAMES, columns, draw, write
from typer.testing import CliRunner

from metacal.cli.app import app
from metacal.evaluation import read_predictions, score_predictions
from metacal.evaluation.evaluation import FIGURES, OOD_FIGURES

FAST = ["--resamples", "10"]


@pytest.fixture
def said(tmp_path):
    """A file of an over-confident model's probabilities."""
    logits, _, targets = draw(n=500)
    return write(tmp_path / "said.parquet", columns(torch.softmax(3.0 * logits, 1), targets))


def test_table_and_json_agree_with_the_library(metacal, said, tmp_path):
    status, output, errors = metacal("evaluate", said, "--json", tmp_path / "scores.json")
    assert status == 0
    assert errors == ""
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert set(FIGURES) <= set(figures)
    assert figures["rows"] == 500
    assert figures["num_classes"] == 3
    predictions = read_predictions(said)
    scores = score_predictions(probs=predictions.probs, targets=predictions.targets).as_dict()
    for name, value in scores.items():
        assert figures[name] == pytest.approx(value, abs=1e-12), name
    for name in ("accuracy", "nll", "ece", "smooth_ece"):
        interval = f"{figures[f'{name}_low']:.4f} .. {figures[f'{name}_high']:.4f}"
        assert re.search(rf"^│ {name}\s+│ {figures[name]:.4f} │ {re.escape(interval)} │", output, re.M), name
    assert "Over-confident: it says" in output
    assert re.search(r"Temperature scaling \(T = (2\.[7-9]|3)", output)
    assert "Most often confused: " in output
    assert " as " in output
    assert figures["temperature_scaling"]["ece_after"] < figures["ece"]
    assert {figures["classes"][0][key] for key in ("name", "samples")} >= {"cat"}


def test_several_files_side_by_side(metacal, said, tmp_path):
    logits, _, targets = draw(n=300, seed=1)
    other = write(tmp_path / "other.csv", columns(logits, targets, "logit_"))
    status, output, _ = metacal("evaluate", said, other, "--json", tmp_path / "scores.json", *FAST)
    assert status == 0
    found = json.loads((tmp_path / "scores.json").read_text())["files"]
    assert [entry["rows"] for entry in found] == [500, 300]
    row = re.search(r"^│ nll\s+│\s+(\S+) │\s+(\S+) │", output, re.M)
    assert row.groups() == tuple(f"{entry['nll']:.4f}" for entry in found)
    assert f"{said}: 500 samples, 3 classes" in output.replace("\n", "")
    assert "other" in output


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (["--fail-above", "ece=0.5"], 0, "is at most 0.5"),
        (["--fail-above", "ece=0.01"], 1, "FAILS: above 0.01"),
        (["--fail-above", "ece=0.5", "--fail-above", "nll=0.1"], 1, "FAILS: above 0.1"),
        (["--fail-above", "ece_low=0.9"], 0, "is at most 0.9"),
        (["--fail-below", "accuracy=0.99"], 1, "FAILS: below 0.99"),
        (["--fail-below", "accuracy=0.2", "--fail-above", "brier=1"], 0, "is at least 0.2"),
    ],
)
def test_gates(metacal, said, options, status, says):
    found, output, errors = metacal("evaluate", said, *options, *FAST)
    assert found == status
    assert says in (errors if status else output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail-above", "ece"], "`--fail-above` must be KEY=NUMBER, such as ece=0.05, got 'ece'."),
        (["--fail-above", "ece=low"], "`--fail-above` must be KEY=NUMBER, such as ece=0.05, got 'ece=low'."),
        (["--fail-below", "acc=0.9"], "`--fail-below` must name one of accuracy, accuracy_low"),
        (["--fail-above", "ood_fpr95_entropy=1"], "got 'ood_fpr95_entropy'."),
        (["--class-names", "a,a,b"], "`--class-names` must hold different names"),
    ],
)
def test_bad_options(metacal, said, options, message):
    status, output, errors = metacal("evaluate", said, *options)
    assert status == 2
    assert output == ""
    assert errors.count("\n") == 1
    assert message in errors


def test_json_that_cannot_be_written(metacal, said, tmp_path):
    status, output, errors = metacal("evaluate", said, "--json", tmp_path / "no" / "scores.json", *FAST)
    assert status == 2
    assert "`--json` must name a file in a folder that exists" in errors
    assert output == ""  # said before the work, not after it


@pytest.mark.parametrize("named", ["resnet,vgg", "*g*,resnet,vgg"])
def test_several_models_of_one_archive_side_by_side(metacal, tmp_path, named):
    (_, first, targets), (_, second, _) = draw(n=200), draw(n=200, seed=1)
    arrays = {"resnet": first.numpy(), "vgg": second.numpy(), "human_probs": np.eye(3)[targets], "y": targets.numpy()}
    np.savez(tmp_path / "models.npz", **arrays, class_names=np.array(NAMES))
    status, output, _ = metacal(
        "evaluate", tmp_path / "models.npz", "--probs", named, "--json", tmp_path / "scores.json", *FAST
    )
    files = {file["file"]: file for file in json.loads((tmp_path / "scores.json").read_text())["files"]}
    assert status == 0
    assert set(files) == {f"{tmp_path}/models.npz:{name}" for name in ("resnet", "vgg")}
    assert re.search(r"measure .* resnet .* vgg" if named[0] == "r" else r"measure .* vgg .* resnet", output)
    for name, probs in (("resnet", first), ("vgg", second)):
        alone = score_predictions(probs=probs, targets=targets)
        assert files[f"{tmp_path}/models.npz:{name}"]["nll"] == pytest.approx(alone.nll, abs=1e-12)


def test_out_of_distribution_by_model(metacal, tmp_path):
    (_, first, targets), (_, second, _) = draw(n=200), draw(n=200, seed=1)
    np.savez(tmp_path / "in.npz", a=first.numpy(), b=second.numpy(), y=targets.numpy())
    np.savez(tmp_path / "out.npz", a=np.full((9, 3), 1 / 3), b=np.eye(3))
    options = ["--probs", "a,b", "--json", tmp_path / "scores.json", *FAST]
    assert metacal("evaluate", tmp_path / "in.npz", "--ood", tmp_path / "out.npz", *options)[0] == 0
    found = [file["ood_auroc_max_prob"] for file in json.loads((tmp_path / "scores.json").read_text())["files"]]
    assert found == [1.0, 0.0]
    np.savez(tmp_path / "other.npz", b=np.eye(3), a=np.eye(3))
    status, _, errors = metacal("evaluate", tmp_path / "in.npz", "--ood", tmp_path / "other.npz", "--probs", "*")
    assert status == 2
    assert "`--ood` must have one array, or those of the models that are evaluated, got" in errors


def test_out_of_distribution(metacal, said, tmp_path):
    flat = torch.softmax(0.3 * draw(n=200, seed=2)[0], 1)
    table = columns(flat, torch.zeros(200, dtype=torch.int64))
    del table["label"]
    ood = write(tmp_path / "ood.parquet", table)
    options = ["--ood", ood, "--json", tmp_path / "scores.json", "--fail-below", "ood_auroc_max_prob=0.8"]
    status, output, _ = metacal("evaluate", said, *options, *FAST)
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert status == 0
    assert set(OOD_FIGURES) <= set(figures)
    assert "ood_auroc_max_prob" in output
    assert figures["ood_auroc_max_prob"] > 0.9
    assert figures["ood_fpr95_max_prob"] < 0.5
    other = write(tmp_path / "other.parquet", {f"p_{name}": np.full(9, 0.25) for name in "abcd"})
    status, _, errors = metacal("evaluate", said, "--ood", other, *FAST)
    assert status == 2
    assert "other.parquet: must have 3 classes, as" in errors
    assert "got 4" in errors


def test_a_sample_and_too_few_rows_are_said(metacal, said, tmp_path):
    _, output, _ = metacal("evaluate", said, "--sample", "100", *FAST)
    assert "* of a random sample of 100 of the 500 rows, as are temperature" in output
    assert re.search(r"│ smooth_ece \*", output)
    assert re.search(r"│ ece  ", output)
    _, probs, targets = draw(n=30)
    few = write(tmp_path / "few.csv", columns(probs, targets))
    _, output, _ = metacal("evaluate", few, *FAST)
    assert "30 samples are too few for 15 bins: chance alone gives a calibrated model an ECE of about" in output


def test_one_sided_intervals_and_estimates_above_their_interval_are_said(metacal, tmp_path):
    logits, _, targets = draw(n=600)
    path = write(tmp_path / "calibrated.csv", columns(logits, targets, "logit_"))
    status, output, _ = metacal("evaluate", path, "--json", tmp_path / "scores.json")
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert status == 0
    assert figures["ece_low"] == 0.0
    assert figures["one_sided"]["ece"] == "upper"
    assert re.search(rf"^│ ece\s+│ {figures['ece']:.4f} │\s+at most {figures['ece_high']:.4f} │", output, re.M)
    assert '"At most": chance alone explains such an error, so its interval is one-sided.' in output
    assert "accuracy" not in figures["one_sided"]
    assert figures["ece"] < figures["ece_high"]
    right = write(tmp_path / "right.csv", columns(torch.eye(3)[targets] * 0.7 + 0.1, targets))
    _, output, _ = metacal("evaluate", right, *FAST)
    assert re.search(r"^│ accuracy\s+│ 1.0000 │\s+at least 0.9936 │", output, re.M)
    logits, _, targets = draw(n=600, num_classes=40)
    many = write(tmp_path / "many.csv", columns(logits, targets, "logit_", names=[str(k) for k in range(40)]))
    _, output, _ = metacal("evaluate", many, "--json", tmp_path / "scores.json", *FAST)
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert figures["classwise_ece"] > figures["classwise_ece_high"]
    assert "too high: classwise_ece lies above the interval of the true one." in output


def test_names_that_look_like_markup_stay_text(metacal, tmp_path):
    _, probs, targets = draw(n=60)
    names = ("[red]cat[/]", "<script>alert(1)</script>", "[/]")
    path = write(tmp_path / "said.parquet", columns(probs, targets, names=names))
    status, output, _ = metacal("evaluate", path, *FAST)
    assert status == 0
    assert "[red]cat[/]" in output
    assert "<script>alert(1)</script>" in output


def test_names_cannot_command_the_terminal(metacal, tmp_path):
    path = tmp_path / "a\x1b[2J\nb.csv"
    path.write_text("p_cat\x1b[31m,p_\u202edog,p_\x9b1m,label\n" + "0.5,0.25,0.25,0\n0.25,0.5,0.25,2\n" * 9)
    gated, missing = (path, "--fail-above", "nll=0.0001"), (tmp_path / "\x1b[8mno.csv",)
    for words, expected in (((path,), 0), ((path, path), 0), (gated, 1), (missing, 2)):
        status, output, errors = metacal("evaluate", *words, *FAST)
        assert status == expected
        assert not set("\x1b\u202e\x9b") & set(output + errors)
    assert errors.startswith("error: ")
    assert "\u241b[8mno.csv: no such file" in errors
    status, output, _ = metacal("evaluate", path, *FAST)
    assert "\ufffd1m as \ufffddog (9)" in output
    assert "cat\u241b[31m (" in output
    assert "a\u241b[2J" in output


def test_a_line_feed_in_a_name_breaks_no_line(metacal, tmp_path):
    path = tmp_path / "a\nb.parquet"
    probs = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]] * 9)
    write(path, {"p_cat": probs[:, 0], "p_dog\nECE 0.0": probs[:, 1], "p_eel": probs[:, 2], "label": [0, 2] * 9})
    status, output, errors = metacal("evaluate", path, *FAST, "--fail-above", "nll=0.0001")
    assert status == 1
    assert errors.count("\n") == 1
    assert "a\u240ab.parquet: nll" in errors
    assert "a\u240ab.parquet: 18 samples" in output
    assert "Most often confused: eel as dog\u240aECE 0.0 (9)." in output
    assert "dog\u240aECE 0.0 (0." in output
    assert not any(line.startswith("ECE") for line in output.splitlines())
    write(path, {"p_cat": probs[:, 0], "p_dog\u2028ECE 0.0": probs[:, 1], "p_eel": probs[:, 2], "label": [0, 2] * 9})
    assert not any(line.startswith("ECE") for line in metacal("evaluate", path, *FAST)[1].splitlines())
    status, output, _ = metacal("evaluate", path, path, *FAST)
    assert status == 0
    assert "\na\u240ab.parquet: 18 samples" in output.replace(f"{tmp_path}/", "")


def test_a_file_name_that_is_not_text(metacal, tmp_path):
    name = os.fsdecode(b"caf\xe9")
    np.savez(tmp_path / f"{name}.npz", probs=np.array([[0.5, 0.5], [0.25, 0.75]]), y=np.array([0, 1]))
    status, output, _ = metacal("evaluate", tmp_path / f"{name}.npz", *FAST)
    assert status == 0
    assert "caf\ufffd.npz: 2 samples" in output
    page = tmp_path / "page.html"
    status, output, _ = metacal("report", tmp_path / f"{name}.npz", "-o", page, "--resamples", "10")
    assert status == 0
    assert "caf?" in page.read_text()
    for suffix in (".csv", ".parquet", ".arrow"):  # Arrow opens no such file
        path = tmp_path / f"{name}{suffix}"
        path.write_text("p_a,p_b,label\n0.5,0.5,a\n0.25,0.75,b\n")
        status, _, errors = metacal("evaluate", path, *FAST)
        assert status == 2
        assert "the name of the file is not text in UTF-8; rename it" in errors


def test_options_name_columns(metacal, tmp_path):
    _, probs, targets = draw(n=60)
    table = {f"s{k}": probs[:, k].numpy() for k in range(3)} | {"truth": [NAMES[t] for t in targets]}
    path = write(tmp_path / "said.csv", table)
    (tmp_path / "names.txt").write_text("cat\ndog\neel\n")
    options = ["--probs", "s*", "--target", "truth", "--class-names", tmp_path / "names.txt"]
    status, output, errors = metacal("evaluate", path, *options, *FAST)
    assert (status, errors) == (0, "")
    assert "60 samples, 3 classes" in output
    assert metacal("evaluate", path, *options[:-1], "cat,dog,eel", *FAST)[0] == 0
    (tmp_path / "names.txt").write_bytes(b"cat\ndog\ncaf\xe9\n")
    status, _, errors = metacal("evaluate", path, *options, *FAST)
    assert status == 2
    assert "names.txt: is not text in UTF-8; write it again as such" in errors


def test_help_has_examples_and_exit_statuses():
    output = CliRunner().invoke(app, ["evaluate", "--help"], env={"COLUMNS": "120"}).stdout
    assert "metacal evaluate test.parquet" in output
    assert "--fail-above ece=0.05" in output
    assert "1 a figure" in output


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10", 0.9109, 0.0537), ("densenet-bc-100-cifar-100", 0.7541, 0.1422)],
)
def test_real_predictions_in_a_process_of_their_own(data_folder, tmp_path, name, accuracy, ece):
    command = [str(Path(sys.executable).with_name("metacal")), "evaluate", *FAST]
    command += [str(data_folder / "predictions" / f"{name}.npz"), "--json", str(tmp_path / "scores.json")]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr
    figures = json.loads((tmp_path / "scores.json").read_text())
    assert (round(figures["accuracy"], 4), round(figures["ece"], 4)) == (accuracy, ece)
    assert np.isclose(figures["ece_low"], ece, atol=0.01)
    assert "Over-confident" in run.stdout


def test_huge_figures_and_none_fit_the_table(metacal, tmp_path):
    logits, _, targets = draw(n=200)
    huge = write(tmp_path / "huge.npz", {"logits": 1e30 * logits.double().numpy(), "targets": targets.numpy()})
    _, output, _ = metacal("evaluate", huge, *FAST)
    assert re.search(r"^│ nll\s+│ \d\.\d+e\+29 │", output, re.M)
    assert re.search(r"^│ accuracy\s+│\s+0\.\d{4} │", output, re.M)
    assert "T = 1e+03, the end of its range" in output
    hard = write(tmp_path / "hard.npz", {"probs": np.eye(3)[logits.argmax(1)], "targets": targets.numpy()})
    status, output, errors = metacal("evaluate", hard, *FAST)
    assert (status, errors) == (0, "")
    assert "nan" not in output
    assert "NLL is infinite: a true class had a probability of exactly 0" in output


def test_what_was_read_is_said_and_kept(metacal, said, tmp_path):
    status, output, _ = metacal("evaluate", said, "--json", tmp_path / "scores.json", *FAST)
    assert status == 0
    assert "said.parquet: 500 rows, probabilities p_cat p_dog p_eel (by name), target label." in output
    assert json.loads((tmp_path / "scores.json").read_text())["read"]["target"] == "label"


def test_top_label_files_beside_others(metacal, said, tmp_path):
    path = tmp_path / "top.csv"
    path.write_text("confidence,prediction,label\n" + "0.9,a,a\n0.6,b,a\n" * 40)
    status, output, _ = metacal("evaluate", path, said, *FAST)
    assert status == 0
    assert "top-label figures only" in output
    status, _, errors = metacal("evaluate", path, "--fail-above", "nll=1", *FAST)
    assert status == 2
    assert "has no nll, only top-label confidences; name another figure" in errors


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_gate_against_a_baseline(metacal, said, tmp_path, kind):
    logits, _, targets = draw(n=500)
    good = write(tmp_path / "good.parquet", columns(torch.softmax(logits, 1), targets))
    names = {good: good, said: said}
    if kind == "json":
        for path in (good, said):
            names[path] = tmp_path / f"{path.stem}.json"
            assert metacal("evaluate", path, "--json", names[path], *FAST)[0] == 0
    status, _, errors = metacal("evaluate", said, "--baseline", names[good], "--fail-if-worse", "ece", *FAST)
    assert status == 1
    assert errors.startswith("FAILS: worse than the baseline: said's ECE is higher by ")
    assert errors.count("\n") == 1
    for old in (said, good):  # better, and the same
        options = ["--fail-if-worse", "ece", "--fail-if-worse", "nll"]
        assert metacal("evaluate", good, "--baseline", names[old], *options, *FAST)[0] == 0
    bound = ["--fail-above", "ece=0.1"]  # of the new file: the baseline breaks it
    assert metacal("evaluate", good, "--baseline", names[said], "--fail-if-worse", "ece", *bound, *FAST)[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail-if-worse", "ece"], "`--baseline FILE` and `--fail-if-worse KEY` must be given together"),
        (["--baseline", "x.json", "--fail-if-worse", "speed"], "`--fail-if-worse` must name one of accuracy"),
        (["--baseline", "x.json", "--fail-if-worse", "ece"], "x.json: no such file; check the path."),
    ],
)
def test_bad_baselines(metacal, said, options, message):
    status, _, errors = metacal("evaluate", said, *options, *FAST)
    assert status == 2
    assert message in errors


def test_an_infinite_likelihood_is_explained(metacal, tmp_path):
    probs = np.eye(2)[np.arange(100) % 2]
    np.savez(tmp_path / "sure.npz", probs=probs, y=np.arange(100) // 50)
    status, output, _ = metacal("evaluate", tmp_path / "sure.npz", *FAST)
    assert status == 0
    assert "NLL is infinite: a true class had a probability of exactly 0." in output
    assert "would not help" not in output
