"""The pages that are made from ``results/``: what is there is shown, with its command, met or missed."""

import importlib.util
import json
from pathlib import Path

import pytest

from metacal.lab.paper.experiments import EXHIBITS

HOOKS = Path(__file__).parent.parent / "docs" / "hooks"


def hook(name):
    spec = importlib.util.spec_from_file_location(f"docs_hook_{name}", HOOKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def measured(tmp_path):
    folder = tmp_path / "some-cpu"
    folder.mkdir()
    about = {"command": "metacal run main-ece -o some-cpu", "scale": "cpu", "seeds": [0], "train_seconds": 7200.0}
    (folder / "about.json").write_text(json.dumps(about | {"date": "today", "torch": "2"}))
    (folder / "main-ece.json").write_text(json.dumps({"note": "Ours: means. Data: 20news-bydate.tar.gz, glove.txt."}))
    head = "row,method,metric,mean,std,seeds,published_mean,published_std,setting\n"
    cells = (
        "CIFAR-10 ResNet18,CE,ece_percent,10.5,,1,4.23,0.15,reduced or changed\n"
        "CIFAR-10 ResNet18,MC,ece_percent,1.25,0.5,2,1.17,0.26,reduced or changed\n"
        "CIFAR-10 ResNet50,CE,ece_percent,,,0,4.19,0.1,reduced or changed\n"
        "20 Newsgroups Global Pooling CNN,CE,ece_percent,18.5,,1,18.6,,as published\n"
        '20 Newsgroups Global Pooling CNN,"MC, steady",ece_percent,2.5,,1,,,not in the paper\n'
    )
    (folder / "main-ece.csv").write_text(head + cells)
    (tmp_path / "verdicts.json").write_text(json.dumps({"main-ece": {"holds": "partly", "why": "It does here."}}))
    return tmp_path


def test_reproduction_sets_ours_above_published_and_says_how_far_it_is(measured, monkeypatch):
    reproduction = hook("reproduction")
    monkeypatch.setattr(reproduction, "RESULTS", measured)
    monkeypatch.setattr(reproduction, "VERDICTS", measured / "verdicts.json")
    page = reproduction.on_page_markdown(f"# Title\n\n{reproduction.MARK}")
    assert "| CIFAR-10 ResNet18, ours (seeds) | 10.50 (1) | 1.25 ± 0.50 (2) |  |" in page
    assert "| CIFAR-10 ResNet18, published | 4.23 ± 0.15 | 1.17 ± 0.26 |  |" in page
    first = page.partition("## Table 2")[0].partition("## Table 1")[2]
    assert "ResNet50, ours" not in first and "    | CIFAR-10 ResNet50 | " in first, (
        "what the paper has is there in full"
    )
    assert "| some-cpu | `metacal run main-ece -o some-cpu` | 0 | 2.0 h | today, 2 |" in page
    settings = "cpu scale, published setting, settings of our own"
    link = f"| [Table 1: Test ECE](#table-1-test-ece) | `metacal run main-ece` | 4 cells, {settings} |"
    assert f"{link} partly |" in page and "**Does the claim hold there? Partly.** It does here." in first
    assert "| `metacal run ablation` | not yet |" in page
    edition = "20 Newsgroups is the bydate edition here: 18,846 documents instead of the paper's 19,997."
    assert f"\nData: 20news-bydate.tar.gz, glove.txt. {edition}\n" in first


def test_every_measured_claim_has_a_verdict():
    reproduction = hook("reproduction")
    due = {exhibit.name for exhibit in EXHIBITS.values() if exhibit.number and reproduction.measured(exhibit)}
    found = reproduction.verdicts()
    assert found.keys() == due
    assert all(each["holds"] in ("yes", "no", "partly") and each["why"].endswith(".") for each in found.values())


def test_benchmarks_are_shown_with_what_they_missed(tmp_path, monkeypatch):
    speed = hook("speed")
    monkeypatch.setattr(speed, "RESULTS", tmp_path)
    target = {"name": "ratio", "value": 1.234, "bound": 2.0, "at_least": True, "is_met": False}
    part = {"title": "A part", "rows": [{"what": "ours", "ms": 12.3456}] * 2, "notes": ["A note."]}
    about = {"command": "python -m benchmarks.new", "date": "today", "wall_seconds": 12.3, "torch": "2"}
    about |= {"cores": 2, "processor": "P"}
    parts = {
        "a": part | {"targets": [target], "warning": "Other processes used 50% of the machine meanwhile."},
        "b": part | {"targets": [], "warning": None},
    }
    parts["b"] = parts["b"] | {"rows": part["rows"] * 20}
    (tmp_path / "new.json").write_text(json.dumps({"about": about, "parts": parts}))
    theirs = {"about": {"setting": "Their own code", "source": "where it is"}, "parts": {"b": parts["b"]}}
    (tmp_path / "published_code.json").write_text(json.dumps(theirs))
    page = speed.on_page_markdown(speed.MARK)
    assert "Their own code (where it is), `results/benchmarks/published_code.json`." in page
    assert (
        "| ours | 12.35 |" in page
        and "A note." in page
        and "`python -m benchmarks.new`, today, 12 s, torch 2, 2 cores (P)" in page
    )
    assert "- ratio: 1.23, target at least 2: **missed**" in page
    assert page.count("Other processes used 50% of the machine") == 1
    assert '??? note "40 rows"' in page
