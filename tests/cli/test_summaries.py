"""Markdown and JUnit XML of ``metacal evaluate``, standard output, and rows of several files matched by their ids."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tests.evaluation.files import columns, draw, write

FAST = ["--resamples", "10"]


@pytest.fixture
def two(tmp_path):
    """An over-confident model and a calibrated one, the rows of the second in another order."""
    logits, probs, targets = draw(n=500)
    order = np.random.default_rng(0).permutation(500)
    sure = columns(torch.softmax(3.0 * logits, 1), targets) | {"id": np.arange(500), "half": ["a", "b"] * 250}
    good = columns(probs[order], targets[order]) | {"id": order, "half": ["a", "b"] * 250}
    return write(tmp_path / "sure.csv", sure), write(tmp_path / "good.parquet", good)


def test_markdown(metacal, two, tmp_path):
    sure, good = two
    out = tmp_path / "summary.md"
    options = ["--baseline", good, "--fail-if-worse", "ece", "--fail-below", "accuracy=0.1", "--by", "half"]
    status = metacal("evaluate", sure, *options, "--markdown", out, *FAST)[0]
    assert status == 1
    text = out.read_text()
    lines = text.splitlines()
    assert lines[0] == "### Calibration of good and sure (500 rows)"
    assert lines[2:4] == ["| figure | good (95 % interval) | sure (95 % interval) |", "|---|---:|---:|"]
    assert any(line.startswith("- **sure's ECE is higher by ") for line in lines)
    assert "- ✅ " in text
    assert [line for line in lines if line.startswith("- ❌ FAILS: worse than the baseline: sure's ECE")]
    assert "sure by half, the worst first. Groups of half " in text
    assert "| group | rows | accuracy | confidence | ECE (95 % interval) |" in lines


def test_names_in_markdown_stay_text(metacal, tmp_path):
    _, probs, targets = draw(n=60)
    table = columns(probs, targets) | {"a|b": ["@all", "<b>*x*"] * 30}
    path = write(tmp_path / "[x](y)_.csv", table)
    status, output, _ = metacal("evaluate", path, "--by", "a|b", "--markdown", "-", *FAST)
    assert status == 0
    assert output.startswith("### Calibration of \\[x\\](y)\\_ (60 rows)\n")
    assert "| &#64;all | 30 |" in output
    assert "| \\<b\\>\\*x\\* | 30 |" in output
    assert "by a\\|b, the worst first" in output


def test_standard_output_has_nothing_else(metacal, two):
    status, output, errors = metacal("evaluate", two[0], "--json", "-", "--fail-above", "ece=0.9", *FAST)
    assert status == 0
    assert json.loads(output)["rows"] == 500
    assert "Over-confident" in errors
    assert "ece 0." in errors


def test_junit(metacal, two, tmp_path):
    sure, good = two
    out = tmp_path / "checks.xml"
    gates = ["--fail-above", "ece=0.01", "--fail-below", "accuracy=0.1"]
    assert metacal("evaluate", sure, good, *gates, "--junit", out, *FAST)[0] == 1
    root = ElementTree.parse(out).getroot()
    suite = root.find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    cases = [(case.get("classname"), case.get("name")) for case in suite]
    assert cases[0] == ("sure", "ece at most 0.01")
    assert cases[3] == ("good", "accuracy at least 0.1")
    failed = suite[0].find("failure")
    assert "FAILS: above 0.01" in failed.get("message")
    assert suite[3].find("failure") is None


def test_control_characters_do_not_break_the_xml(metacal, tmp_path):
    path = tmp_path / "a\x1b\nb&<.csv"
    path.write_text("p_a,p_b,label\n" + "0.5,0.5,a\n0.25,0.75,b\n" * 9)
    assert metacal("evaluate", path, "--fail-above", "ece=0", "--junit", tmp_path / "checks.xml", *FAST)[0] == 1
    case = ElementTree.parse(tmp_path / "checks.xml").getroot()[0][0]
    assert case.get("classname") == "a\u241b\u240ab&<"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--junit", "x.xml"], "`--junit` must have a gate to report; add --fail-above, --fail-below or --baseline."),
        (
            ["--json", "-", "--markdown", "-"],
            "Only one of `--json`, `--markdown` and `--junit` can be `-`; name a file.",
        ),
        (["--markdown", "no/such/folder.md"], "`--markdown` must name a file in a folder that exists"),
    ],
)
def test_bad_outputs(metacal, two, options, message):
    status, output, errors = metacal("evaluate", two[0], *options, *FAST)
    assert (status, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_rows_are_matched_by_id(metacal, two, tmp_path):
    sure, good = two
    logits, probs, targets = draw(n=500)
    same = write(tmp_path / "same.parquet", columns(probs, targets) | {"id": np.arange(500)})
    found = []
    for other in (good, same):
        options = ["--json", tmp_path / "both.json", "--sample", "200", *FAST]
        status, output, _ = metacal("evaluate", sure, other, *options)
        assert status == 0
        assert "Compared with sure on the same 200 sampled rows" in output
        found.append(json.loads((tmp_path / "both.json").read_text())["differences"])
    for one, two_ in zip(*found, strict=True):
        for key in ("value", "low", "high"):
            assert one[key] == pytest.approx(two_[key], abs=1e-6), one["figure"]
    losses = [-torch.log_softmax(scale * logits.double(), 1)[torch.arange(500), targets] for scale in (3.0, 1.0)]
    metacal("evaluate", sure, good, "--json", tmp_path / "both.json", *FAST)
    nll = json.loads((tmp_path / "both.json").read_text())["differences"][1]
    assert nll["value"] == pytest.approx((losses[1] - losses[0]).mean().item(), abs=1e-5)


def test_ids_that_do_not_match(metacal, two, tmp_path):
    sure, _ = two
    _, probs, targets = draw(n=500)
    other = write(tmp_path / "other.csv", columns(probs, targets) | {"id": np.arange(1, 501)})
    status, output, _ = metacal("evaluate", sure, other, *FAST)
    assert status == 0
    assert "other.csv: has no id 0, which another file has; add or drop it. Rows are not compared one by one." in output
    status, _, errors = metacal("evaluate", other, "--baseline", sure, "--fail-if-worse", "ece", *FAST)
    assert status == 2
    assert "`--baseline` must hold the same rows, got" in errors
    assert "has no id 0" in errors


def test_a_baseline_of_predictions_as_json(metacal, two, tmp_path):
    sure, _ = two
    _logits, probs, targets = draw(n=500)
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"probs": probs.tolist(), "class_names": ["cat", "dog", "eel"], "y": targets.tolist()}))
    status, _, errors = metacal("evaluate", sure, "--baseline", old, "--fail-if-worse", "ece", *FAST)
    assert status == 1
    assert "FAILS: worse than the baseline: sure's ECE is higher by" in errors
