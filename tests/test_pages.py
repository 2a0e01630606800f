"""Pages with measured figures are what their templates make of ``results``; no template can invent a figure."""

import json
import re
from pathlib import Path

import pytest
from benchmarks.pages.__main__ import claim, difference, render, reproduction
from benchmarks.pages.reproduction import Reproduction
from benchmarks.pages.results import MissingFigureError, Results, markdown
from benchmarks.pages.rooms import floors, import_graph, picture, reduced
from benchmarks.pages.sections import benchmarks, conformance, walk
from benchmarks.walks import purpose

from metacal.lab.paper import EXHIBITS

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.S)
DECIMAL = re.compile(r"(?<![\w.,])\d+\.\d+(?![\w.]*\d)")
# Pages without a template: their decimals are settings, definitions, versions or arithmetic, not measurements.
NOT_MEASURED = {
    *(f"docs/{name}.md" for name in ("evaluate", "method", "posthoc", "quickstart", "report", "train")),
    *(f"docs/design/{name}.md" for name in ("exact-sums", "fidelity", "inputs")),
    "docs/troubleshooting.md",
}


@pytest.fixture
def results(tmp_path):
    (tmp_path / "table.csv").write_text('name,a,lost,lost\nx,1.25,"9.5, 2,000",none\ny,3.5,,\ny,4.5,,\n')
    rows = [{"K": 10, "ratio": 1.2549}, {"K": 100, "ratio": 1.3}]
    (tmp_path / "file.json").write_text(json.dumps({"rows": rows, "share": 0.0321, "word": "none"}))
    (tmp_path / "tables.md").write_text(
        "Made by x.\n\n| a |\n|---|\n| 1 |\n\ntext\n\n| b |\n|---|\n| 2 |\n\n- met\n- missed\n"
    )
    differences = "| data | d |\n|---|---|\n| x | -0.2 ± 0.1 |\n| y | **+0.2 ± 0.1** |\n| z | +0.1 ± 0.1 |\n"
    (tmp_path / "differences.md").write_text(differences)
    return Results(tmp_path)


def test_pages_are_what_their_templates_make():
    pages = render(ROOT)
    stale = [said for path, text in pages.items() if (said := difference(path, text)) is not None]
    assert not stale, "\n".join(stale)
    assert ROOT / "README.md" in pages


def test_a_page_with_decimals_is_made_from_a_template():
    pages = {page.relative_to(ROOT).as_posix(): page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    made = {path.relative_to(ROOT).as_posix() for path in render(ROOT)}
    has = {name for name, page in pages.items() if DECIMAL.search(CODE.sub(" ", page.read_text(encoding="utf-8")))}
    assert has - made - NOT_MEASURED == set()


def test_the_first_difference_is_named_with_its_line(tmp_path):
    page = tmp_path / "page.md"
    assert "not there" in difference(page, "text")
    page.write_text("one\ntwo\n")
    assert difference(page, "one\ntwo\n") is None
    assert difference(page, "one\n2\n").splitlines()[0].startswith(f"{page}:2: ")
    assert difference(page, "one\n2\n").splitlines()[1:] == ["  has    two", "  should 2"]
    assert "should three" in difference(page, "one\ntwo\nthree\n")


def test_figures_by_their_place(results):
    assert results.figure("file.json", "share", digits=1, percent=True) == "3.2"
    assert results.figure(["file.json", "rows"], {"K": 10}, "ratio") == "1.25"
    assert results.figure("file.json", "rows", 1, "ratio", digits=3) == "1.300"
    assert results.figure("table.csv", {"name": "x"}, "a", digits=1) == "1.2"
    assert results.figure("table.csv", {"name": "x"}, "lost", 0) == "9.50"
    assert results.value("table.csv", {"name": "x"}, "lost 2") == "none"
    assert results.span("file.json", "rows", {}, "ratio") == "1.25 to 1.30"
    assert results.span("table.csv", {"name": "x"}, "a") == "1.25"
    assert results.figure("tables.md", 1, 0, "b", digits=0) == "2"
    assert results.table("tables.md", 1) == "| b |\n|---|\n| 2 |"


def test_differences_that_are_clear(results):
    found = results.beyond_noise(["differences.md", 0], "data", "d")
    assert found == {"rows": ["x", "y", "z"], "lower": ["x"], "higher": ["y"]}


def test_lists_are_quoted(results):
    assert results.items("tables.md") == "- met\n- missed"
    with pytest.raises(MissingFigureError, match="has no list"):
        results.items("differences.md")


@pytest.mark.parametrize(
    "place",
    [
        ("absent.json", "share"),
        ("file.json", "absent"),
        ("file.json", "rows", 2, "ratio"),
        ("file.json", "rows", {"K": 1000}, "ratio"),
        ("file.json", "rows", {"absent": 10}, "ratio"),
        ("file.json", "word"),
        ("table.csv", {"name": "y"}, "a"),  # two rows
        ("table.csv", {"name": "x"}, "absent"),
        ("table.csv", {"name": "x"}, "lost", 3),
        ("table.csv", {"name": "y"}, "lost"),
        ("tables.md", 2, {}, "a"),
        ("tables.md", 1, {}, "a"),
    ],
)
def test_a_figure_that_is_not_there_is_an_error(results, place):
    with pytest.raises(MissingFigureError, match=place[0]):
        results.figure(*place)


def test_a_table_that_is_not_there_is_an_error(results):
    with pytest.raises(MissingFigureError, match="has 2 tables, asked for number 2"):
        results.table("tables.md", 2)
    with pytest.raises(MissingFigureError, match=r"absent\.md has 0 tables"):
        results.table("absent.md")


@pytest.mark.parametrize("text", ['{{ figure("absent.json", "x") }}', "{{ undefined_name }}"])
def test_a_template_says_what_it_lacks(tmp_path, text):
    folder = tmp_path / "docs" / "templates"
    folder.mkdir(parents=True)
    (folder / "page.md.j2").write_text(text)
    with pytest.raises(MissingFigureError, match=r"docs/templates/page\.md\.j2: .*(absent\.json|undefined_name)"):
        render(tmp_path)


def test_a_sentence_that_no_longer_holds_is_an_error():
    assert claim(True, "It helps.") == "It helps."
    with pytest.raises(MissingFigureError, match=r"no longer say that 'It helps\.'"):
        claim(False, "It helps.")


def test_markdown_shows_four_figures():
    rows = [{"a": 1.23456, "b": 12345.6, "c": None, "d": "text"}]
    assert markdown(rows) == "| a | b | c | d |\n|---|---|---|---|\n| 1.235 | 12,346 |  | text |"


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
    return Reproduction(tmp_path, tmp_path, {"main-ece": {"holds": "partly", "why": "It does here."}})


def test_reproduction_sets_ours_above_published_and_says_how_far_it_is(measured):
    page = measured.page()
    assert "| CIFAR-10 ResNet18, ours (seeds) | 10.50 (1) | 1.25 ± 0.50 (2) |  |" in page
    assert "| CIFAR-10 ResNet18, published | 4.23 ± 0.15 | 1.17 ± 0.26 |  |" in page
    first = page.partition("## Table 2")[0].partition("## Table 1")[2]
    assert "ResNet50, ours" not in first
    assert "    | CIFAR-10 ResNet50 | " in first, "what the paper has is there in full"
    assert "| some-cpu | `metacal run main-ece -o some-cpu` | 0 | 2.0 h | today, 2 |" in page
    settings = "cpu scale, published setting, settings of our own"
    link = f"| [Table 1: Test ECE](#table-1-test-ece) | `metacal run main-ece` | 4 cells, {settings} |"
    assert f"{link} partly |" in page
    assert "**Does the claim hold there? Partly.** It does here." in first
    assert "| `metacal run ablation` | not yet |" in page
    edition = "20 Newsgroups is the bydate edition here: 18,846 documents instead of the paper's 19,997."
    assert f"\nData: 20news-bydate.tar.gz, glove.txt. {edition}\n" in first


def test_every_measured_claim_has_a_verdict():
    ours = reproduction(ROOT)
    assert ours.verdicts.keys() == {each.name for each in EXHIBITS.values() if each.number and ours.measured(each)}
    assert all(each["holds"] in ("yes", "no", "partly") for each in ours.verdicts.values())
    assert all(each["why"].endswith(".") for each in ours.verdicts.values())


def test_benchmarks_are_shown_with_what_they_missed(tmp_path):
    target = {"name": "ratio", "value": 1.234, "bound": 2.0, "at_least": True, "is_met": False}
    part = {"title": "A part", "rows": [{"what": "ours", "ms": 12.3456}] * 2, "notes": ["A note."]}
    about = {"command": "python -m benchmarks.new", "date": "today", "wall_seconds": 12.3, "torch": "2"}
    about |= {"cores": 2, "processor": "P"}
    parts = {
        "a": part | {"targets": [target], "warning": "Other processes used 50% of the machine meanwhile."},
        "b": part | {"targets": [], "warning": None, "rows": part["rows"] * 20},
    }
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "new.json").write_text(json.dumps({"about": about, "parts": parts}))
    theirs = {"about": {"setting": "Their own code", "source": "where it is"}, "parts": {"b": parts["b"]}}
    (folder / "published_code.json").write_text(json.dumps(theirs))
    page = benchmarks(Results(tmp_path))
    assert "Their own code (where it is), `results/benchmarks/published_code.json`." in page
    assert "| ours | 12.35 |" in page
    assert "A note." in page
    assert "`python -m benchmarks.new`, today, 12 s, torch 2, 2 cores (P)" in page
    assert "- ratio: 1.23, target at least 2: **missed**" in page
    assert page.count("Other processes used 50% of the machine") == 1
    assert '??? note "40 rows"' in page


def test_conformance_shows_the_answers_that_were_given():
    text = conformance(Results(ROOT / "results"))
    found = json.loads((ROOT / "results" / "conformance" / "answers.json").read_text(encoding="utf-8"))
    for question in found["questions"]:
        answers = " | ".join(f"{answer['mark']} {answer['text']}" for answer in question["answers"].values())
        assert f"| {question['asked']} | {question['right']} | {answers} |" in text
    assert text.count("\n- **") == len(found["questions"])


def test_rooms_stand_above_what_they_import():
    graph = import_graph(ROOT / "src" / "metacal")
    assert graph["functional"] == set()
    assert graph["losses"] == {"functional"}
    assert "lab.training" in graph["lab.engines"]
    graph["cli"].discard("lab.cli")
    level = {room: number for number, rooms in enumerate(floors(graph)) for room in rooms}
    assert all(level[room] > level[used] for room in graph for used in graph[room])
    drawn = picture(ROOT / "src" / "metacal")
    assert all(f">{room.removeprefix('lab.')}</text>" in drawn for room in graph)


def test_arrows_that_follow_from_others_are_left_out():
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert reduced(graph) == {"a": set(), "b": {"a"}, "c": {"b"}}


def test_rooms_that_import_each_other_are_refused():
    with pytest.raises(ValueError, match=r"must not import each other.*'a', 'b'"):
        floors({"a": {"b"}, "b": {"a"}, "c": set()})


def test_a_walk_says_what_each_file_does(tmp_path):
    (tmp_path / "house").mkdir()
    rows = [{"walk": walk, "file": file, "does": f"Does {file}."} for walk, file in ("la", "lb", "sa")]
    (tmp_path / "house" / "walks.json").write_text(json.dumps({"parts": {"files": {"rows": rows}}}))
    assert walk(Results(tmp_path), "l").splitlines()[2:] == ["| `a` | Does a. |", "| `b` | Does b. |"]
    assert walk(Results(tmp_path), "l", beyond="s").splitlines()[2:] == ["| `b` | Does b. |"]
    with pytest.raises(MissingFigureError, match="has nothing at"):
        walk(Results(tmp_path), "absent")


@pytest.mark.slow
def test_walks_are_of_the_house_as_it_is():
    rows = Results(ROOT / "results").value("house/walks.json", "parts", "files", "rows")
    stale = [row["file"] for row in rows if not (ROOT / "src" / "metacal" / row["file"]).is_file()]
    assert not stale, "run `python -m benchmarks.walks --json results/house/walks.json`"
    assert all(row["does"] == purpose(row["file"]) for row in rows)
