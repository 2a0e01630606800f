"""``metacal report`` as a shell meets it: files in, a page out, and one line for what is wrong."""

import hashlib
import json
import webbrowser
from datetime import date, datetime, timezone

import numpy as np
import pytest
from tests.reporting.samples import CIFAR_10, grouped_predictions, some_predictions, some_run
from typer.testing import CliRunner

from metacal.cli import report as verb
from metacal.cli.app import app


@pytest.fixture
def report(metacal):
    """Write a report with rough intervals: ``(status, output, errors)``."""
    return lambda *words: metacal("report", *words, "--resamples", "10")


@pytest.fixture
def file(tmp_path):
    said = some_predictions(samples=200)
    path = tmp_path / "said.npz"
    np.savez(path, logits=said.logits.numpy(), targets=said.targets.numpy())
    return path


def test_a_page_is_written(report, file, tmp_path):
    page = tmp_path / "page.html"
    status, output, errors = report(file, "--logits", "logits", "-o", page)
    assert (status, errors) == (0, "")
    assert output == f"{page} ({page.stat().st_size / 1000:,.0f} kB)\n"
    html = page.read_text(encoding="utf-8")
    assert "said" in html
    assert "200 samples, 10 classes" in html
    assert "<h1>Calibration report</h1>" in html


def test_the_foot_says_what_was_read(report, file, tmp_path):
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    today = datetime.now(timezone.utc).date()
    assert report(file, "-o", page, "--json", numbers)[0] == 0
    origin = json.loads(numbers.read_text(encoding="utf-8"))["origin"]
    (source,) = origin["sources"]
    assert source["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert source["description"] == f"Read {file}: 200 rows, logits logits (by name), target targets."
    assert origin["command"] == f"metacal report {file} -o {page} --json {numbers} --resamples 10"
    assert today <= date.fromisoformat(origin["date"]) <= datetime.now(timezone.utc).date()
    assert f">{source['sha256'][:12]}</code>" in page.read_text(encoding="utf-8")


def test_groups_and_rows_matched_by_id(report, tmp_path):
    said = grouped_predictions(300)
    names = [said.groups.names[code] for code in said.groups.codes]
    rows = list(zip(range(300), names, *said.probs.T.tolist(), said.targets.tolist(), strict=True))
    for file, order in (("a.csv", 1), ("b.csv", -1)):
        lines = [",".join(map(str, row)) for row in rows[::order]]
        (tmp_path / file).write_text("\n".join(["id,region,p_0,p_1,label", *lines]) + "\n", encoding="utf-8")
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    status, _, errors = report(tmp_path / "a.csv", tmp_path / "b.csv", "--by", "region", "-o", page, "--json", numbers)
    assert (status, errors) == (0, "")
    written = json.loads(numbers.read_text(encoding="utf-8"))
    first, second = (subject["predictions"]["groups"] for subject in written["subjects"])
    assert first["names"][0] == "south" and first["samples"] == [100, 100, 100]
    assert [score["values"] for score in first["scores"]] == [score["values"] for score in second["scores"]]
    assert written["comparison"]["problem"] is None  # the same samples in another order
    assert written["comparison"]["verdicts"][0][0] == "b and a: no difference in calibration beyond noise."
    assert ">By region</h3>" in page.read_text(encoding="utf-8")
    status, _, errors = report(tmp_path / "a.csv", "--by", "country", "-o", page)
    assert status == 2 and "country" in errors


def test_figures_and_numbers_too(report, file, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CIFAR_10) + "\n", encoding="utf-8")
    page, numbers, figures = tmp_path / "page.html", tmp_path / "numbers.json", tmp_path / "figures"
    status, output, _ = report(
        file, file, "--logits", "logits", "-o", page, "--json", numbers, "--figures", figures,
        "--class-names", names, "--title", "A <b>title</b>",
    )  # fmt: skip
    assert status == 0
    assert f"{figures} (14 files)" in output
    assert str(numbers) in output
    assert len(list(figures.glob("*.png"))) == len(list(figures.glob("*.svg"))) == 7
    written = json.loads(numbers.read_text(encoding="utf-8"))
    assert [subject["name"] for subject in written["subjects"]] == ["said", "said (2)"]
    assert written["subjects"][0]["predictions"]["classes"]["rows"][3]["name"] == "cat"
    html = page.read_text(encoding="utf-8")
    assert "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>" in html
    assert "Comparison" in html
    assert ">cat<" in html


def test_numbers_are_those_of_the_functions(report, file, tmp_path):
    from metacal.functional import expected_calibration_error

    said, numbers = some_predictions(samples=200), tmp_path / "numbers.json"
    report(file, "--logits", "logits", "-o", tmp_path / "page.html", "--json", numbers)
    part = json.loads(numbers.read_text(encoding="utf-8"))["subjects"][0]["predictions"]
    expected = expected_calibration_error(logits=said.logits, targets=said.targets).item()
    assert part["reliability"]["given"]["ece"] == expected
    assert len(part["reliability"]["scaled"]) == 100


def test_open(report, file, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = tmp_path / "page.html"
    assert report(file, "--logits", "logits", "-o", page)[0] == 0
    assert opened == []
    assert report(file, "--logits", "logits", "-o", page, "--open")[0] == 0
    assert opened == [page.resolve().as_uri()]


def test_a_folder_is_a_run(report, tmp_path, monkeypatch):
    run = some_run(predictions=some_predictions(samples=100))
    monkeypatch.setattr(verb, "FOLDER_READERS", [lambda folder: run])
    page = tmp_path / "page.html"
    assert report(tmp_path, "-o", page)[0] == 0
    assert "What was learned" in page.read_text(encoding="utf-8")


def test_a_large_page_is_remarked_on(report, file, tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "LARGEST", 1000)
    status, _, errors = report(file, "--logits", "logits", "-o", tmp_path / "page.html")
    assert status == 0
    assert "The page has 0.2 MB" in errors


def bad_files(folder):
    (folder / "empty.csv").write_text("", encoding="utf-8")
    (folder / "header.csv").write_text("p_0,p_1,label\n", encoding="utf-8")
    (folder / "nan.csv").write_text("p_0,p_1,label\n0.5,0.5,1\nnan,0.5,0\n", encoding="utf-8")
    (folder / "sum.csv").write_text("p_0,p_1,label\n0.5,0.5,1\n0.5,0.9,0\n", encoding="utf-8")
    (folder / "zero.parquet").write_bytes(b"")
    (folder / "pickle.npz").write_bytes(b"\x80\x04N.")
    return ["missing.csv", "empty.csv", "header.csv", "nan.csv", "sum.csv", "zero.parquet", "pickle.npz"]


def test_bad_files_are_one_line_and_status_2(report, tmp_path):
    for name in bad_files(tmp_path):
        page = tmp_path / "page.html"
        status, output, errors = report(tmp_path / name, "-o", page)
        assert (status, output) == (2, ""), name
        assert errors.count("\n") == 1, name
        assert errors.startswith("error: ")
        assert name in errors
        assert not page.exists()


def test_a_folder_without_the_lab(report, tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "FOLDER_READERS", [])
    status, output, errors = report(tmp_path)
    assert (status, output) == (2, "")
    assert errors.endswith("must be installed for this: pip install 'metacal[lab]'\n")


def test_a_folder_without_a_run(report, tmp_path):
    status, _, errors = report(tmp_path)
    assert status == 2
    assert errors == (
        f"error: `{tmp_path}` must be a prediction file or a run folder, got a folder without a run; "
        "to read prediction files in it, name each of them.\n"
    )


@pytest.mark.parametrize(
    ("option", "target", "complaint"),
    [
        ("-o", "no/page.html", "`--output` must name a file in a folder that exists, got {}.\n"),
        ("-o", ".", "`--output` must name a file that can be written, got the folder {}.\n"),
        ("--json", "no/numbers.json", "`--json` must name a file in a folder that exists, got {}.\n"),
        ("--figures", "said.npz", "{}/said-reliability.png could not be written: "),
    ],
)
def test_places_that_cannot_be_used(report, file, tmp_path, monkeypatch, option, target, complaint):
    monkeypatch.chdir(tmp_path)
    status, _, errors = report(file, "--logits", "logits", option, tmp_path / target)
    assert status == 2
    assert errors.startswith(f"error: {complaint.format(tmp_path / target)}")
    assert errors.count("\n") == 1
    assert option == "--figures" or not (tmp_path / "report.html").exists()


def test_help_has_examples():
    run = CliRunner().invoke(app, ["report", "--help"])
    assert run.exit_code == 0
    assert "metacal report predictions.npz --open" in run.stdout


def test_a_large_file_is_sampled_and_the_page_says_so(report, tmp_path):
    said = some_predictions(samples=500)
    np.savez(tmp_path / "said.npz", logits=said.logits.numpy(), targets=said.targets.numpy())
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    arguments = (tmp_path / "said.npz", "-o", page, "--json", numbers)
    report(*arguments, "--sample", "200")
    text = page.read_text(encoding="utf-8")
    assert "200 samples, 10 classes: a random sample of the file’s 500 rows, which all figures here are of" in text
    part = json.loads(numbers.read_text(encoding="utf-8"))["subjects"][0]["predictions"]
    assert (part["summary"]["samples"], part["summary"]["total"]) == (200, 500)
    predicted = said.logits.argmax(1)
    for one in part["mistakes"]["surest"]:  # rows of the file, not of the sample
        assert said.class_names.index(CIFAR_10[int(one["predicted"])]) == predicted[one["row"]]
        assert int(one["actual"]) == said.targets[one["row"]]
    report(*arguments)
    assert "a random sample" not in page.read_text(encoding="utf-8")
