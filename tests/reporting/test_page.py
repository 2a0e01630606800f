"""The page as text: escaped, complete, small, with nothing fetched from anywhere. How it behaves: test_browser.py."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from tests.reporting.samples import CIFAR_10, HOSTILE, hundred_classes, quick_report, some_predictions, some_run

from metacal.errors import InvalidTypeError
from metacal.evaluation import Predictions
from metacal.reporting import RunView, render_page
from metacal.reporting.page import embedded_json
from metacal.reporting.report import Origin, Source


class Elements(HTMLParser):
    """Gathers tags, attributes and the contents of scripts."""

    VOID = ("meta", "link", "input")

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.stack = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)


@pytest.fixture(scope="module")
def page():
    report = quick_report([some_run(predictions=some_predictions(samples=400)), some_predictions(samples=300)])
    return report, render_page(report, "1.2.3")


def test_an_interval_below_its_figure_is_said_to_be_of_the_true_value():
    report = quick_report([some_predictions(samples=60)])
    summary = report.subjects[0].predictions.summary
    below = [row for row in summary.scores if row.high < row.value - 1e-9]
    assert below
    html = render_page(report)
    for row in (row for row in summary.scores if row.bound != "lower"):
        label = "true value " if row in below else ""
        digits, unit = (f"{row.high * 100:.2f}", "\u00a0%") if row.is_share else (f"{row.high:.4f}", "")
        low = f"{row.low * 100:.2f}{unit} to " if row.is_share else f"{row.low:.4f} to "
        assert f"<small>{label}{'at most ' if row.bound == 'upper' else low}{digits}{unit}</small>" in html, row.key


def test_one_sided_intervals_are_said_to_be_so():
    report = quick_report([some_predictions(samples=400, sharpness=1.0), some_predictions(samples=400, name="sharp")])
    fair, sharp = (subject.predictions.summary.scores[3] for subject in report.subjects)
    assert (fair.bound, sharp.bound) == ("upper", None)
    html = render_page(report, "1.2.3")
    # the headline, its own table, and the comparison
    assert html.count(f"<small>at most {fair.high * 100:.2f}\u00a0%</small>") == 3
    assert html.count(f"<small>{sharp.low * 100:.2f}\u00a0% to {sharp.high * 100:.2f}\u00a0%</small>") == 3
    assert not re.search(r"<small>0\.0+(\u00a0%)? to", html)
    assert "“at most” says that chance alone explains the error" in html
    compared = next(score for score in report.comparison.scores if score.key == "ece")
    assert compared.bounds == ["upper", None]


def test_the_foot_says_where_it_comes_from(page):
    source = Source("said.npz", "0123456789abcdef" * 4, "Read said.npz: 3 rows, logits x (by name), target y.")
    html = render_page(replace(page[0], origin=Origin("2026-01-02", "metacal report 'a <b>.npz'", (source,))), "1.2.3")
    foot = html[html.index("<footer>") :]
    assert "Read said.npz: 3 rows, logits x (by name), target y." in foot and ">0123456789ab</code>" in foot
    assert "Made on 2026-01-02 by metacal 1.2.3: <code>metacal report &#39;a &lt;b&gt;.npz&#39;</code>" in foot
    assert "Made by metacal 1.2.3." in page[1]


def test_the_page_is_one_well_formed_file(page):
    report, html = page
    elements = Elements(html)
    assert elements.stack == [] and html.startswith("<!doctype html>")
    assert len(elements.scripts) == 2
    assert json.loads(elements.scripts[0])["title"] == report.title
    identifiers = [value for _, name, value in elements.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
    for _, name, value in elements.attributes:
        if name in ("for", "aria-labelledby", "data-more"):
            assert value in identifiers


def test_nothing_is_fetched(page):
    elements = Elements(page[1])
    fetching = [(tag, value) for tag, name, value in elements.attributes if name in ("src", "href", "data", "srcset")]
    assert all(value.startswith("#") or value == "data:," for _, value in fetching)
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(elements.tags)
    assert not re.search(r"@import|url\((?!#)", page[1])
    policy = {name: value for tag, name, value in elements.attributes if tag == "meta" and "default" in value}
    assert "default-src 'none'" in policy["content"] and "unsafe" not in policy["content"]


def test_numbers_are_printed(page):
    report, html = page
    summary = report.subjects[1].predictions.summary
    for row in summary.scores:
        shown = f"{row.value:.4f}" if row.key in ("nll", "brier") else f"{row.value * 100:.2f}\u00a0%"
        assert f"<span>{shown}<small>" in html and row.label in html
    assert summary.sentences[1] in html and "metacal 1.2.3" in html
    assert report.subjects[0].run.method in html and "mc-non-uniform-seed-0" in html


def test_figures_have_names_and_tables(page):
    elements = Elements(page[1])
    figures = [value for _, name, value in elements.attributes if name == "data-figure"]
    assert {"given", "scaled", "temperature", "classes", "risk", "error", "ece", "loss"} <= set(figures)
    assert {"strengths", "smoothing", "superclasses", "l2", "compared-ece", "compared-risk"} <= set(figures)
    labels = [value for _, name, value in elements.attributes if name == "aria-label"]
    assert sum("Arrow keys" in label for label in labels) == len(figures)
    assert elements.tags.count("table") >= 20 and elements.tags.count("noscript") == 1


def test_text_from_data_stays_text():
    names = (
        HOSTILE,
        "a & b",
        "\"'><img src=x onerror=alert(1)>",
        "{{ 7 * 7 }}",
        "<!--",
        "\u2028</SCRIPT >",
        "$x$",
        *CIFAR_10[7:],
    )
    said = some_predictions(samples=300, class_names=names, name=HOSTILE)
    run = some_run(class_names=names, predictions=said)
    hostile = RunView(
        HOSTILE, HOSTILE, HOSTILE, names, run.epochs, run.strengths, run.smoothing, {HOSTILE: torch.ones(3)}
    )
    html = render_page(quick_report([said, hostile, run], title=HOSTILE))
    elements = Elements(html)
    assert HOSTILE not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert len(elements.scripts) == 2 and "img" not in elements.tags and "{{ 7 * 7 }}" in html
    assert json.loads(elements.scripts[0])["subjects"][0]["name"] == HOSTILE
    assert "<" not in elements.scripts[0] and "\u2028" not in elements.scripts[0]


def test_embedded_numbers_keep_what_is_shown():
    assert embedded_json([1 / 3, 10, None, 1e-20, True]) == "[0.3333333,10,null,1e-20,true]"
    with pytest.raises(ValueError, match="JSON compliant"):
        embedded_json(float("nan"))


@pytest.mark.parametrize("samples", [1, 2, 19])
def test_few_samples_make_a_page(samples):
    html = render_page(quick_report([some_predictions(samples=samples)]))
    assert f"{samples} samples are too few for 15 bins" in html and "too few samples" in html


def test_extremes_make_a_page():
    right = Predictions.from_probs(torch.eye(3), torch.arange(3))
    wrong = Predictions.from_probs(torch.tensor([[1.0, 0.0]]).repeat(30, 1), torch.ones(30, dtype=torch.long))
    empty = RunView("empty", "m", "d", ("a", "b"), {})
    html = render_page(quick_report([right, wrong, empty]))
    assert "every answer is right" in html and "<span>∞</span>" in html and "recorded nothing to show" in html
    assert "1 of 2 classes was never predicted" in html


def test_thousands_of_classes_stay_under_six_megabytes():
    names = tuple(f"class number {number}" for number in range(1000))
    said = some_predictions(samples=2000, class_names=names)
    run = some_run(
        class_names=names, num_epochs=350, superclasses=tuple(n // 20 for n in range(1000)), predictions=said
    )
    html = render_page(quick_report([run]))
    assert len(html.encode()) < 6_000_000
    assert "Shown are the 100 of 1,000 classes" in html and "Show the worst 200 classes" in html


def test_a_hundred_classes_can_all_be_unfolded():
    names, superclasses = hundred_classes()
    run = some_run(names, 20, superclasses, some_predictions(samples=5000, class_names=names))
    html = render_page(quick_report([run]))
    assert "Show all 100 classes" in html and len(html.encode()) < 1_500_000


def test_same_numbers_same_page(page):
    assert render_page(page[0], "1.2.3") == page[1]


def test_only_reports_are_rendered():
    with pytest.raises(InvalidTypeError, match="`report` must be what prepare_report returns, got dict"):
        render_page({})
