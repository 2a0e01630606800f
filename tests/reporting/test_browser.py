"""The page in a real browser: it loads clean, the slider tells the truth, keyboard and phone work.

Needs Chromium (Debian's package, or METACAL_CHROMIUM names the program); skipped with a reason without it.
"""

import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from tests.reporting.samples import CIFAR_10, HOSTILE, grouped_predictions, quick_report, some_predictions, some_run

from metacal.functional import expected_calibration_error
from metacal.reporting import render_page

pytestmark = pytest.mark.browser

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = (HOSTILE, "<img src=x onerror=alert(2)>", *CIFAR_10[2:])
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    program = os.environ.get("METACAL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no browser: neither METACAL_CHROMIUM nor chromium on the path")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def said():
    return some_predictions(samples=1500, class_names=NAMES, name="first")


@pytest.fixture(scope="module")
def file(said, tmp_path_factory):
    run = some_run(class_names=NAMES, predictions=some_predictions(samples=400, class_names=NAMES, seed=1))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_page(quick_report([said, run])), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser, file):
    """Open the report; at the end nothing may have gone wrong or been fetched."""
    pages, problems = [], []

    def open_with(viewport=DESKTOP, scheme="light"):
        page = browser.new_page(viewport=viewport, color_scheme=scheme)
        page.on("console", lambda message: problems.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: request.url == file.as_uri() or problems.append(f"fetched {request.url}"))
        page.goto(file.as_uri())
        page.wait_for_selector("html.ready", state="attached")
        pages.append(page)
        return page

    yield open_with
    for page in pages:
        page.close()
    assert problems == []


def set_slider(page, step, subject=0):
    page.locator(f"#temperature-{subject}").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
    )


def shown(page, name):
    return page.locator(f".readout [data-value={name}]").first.inner_text()


def test_every_figure_is_drawn(open_page):
    page = open_page()
    empty = page.evaluate(
        "[...document.querySelectorAll('[data-figure]')].filter(p => p.clientWidth && !p.querySelector('svg'))"
        ".map(p => p.dataset.figure)"
    )
    assert empty == [] and page.locator("[data-figure] svg").count() >= 30
    assert page.title() == "Calibration report"


@pytest.mark.parametrize("step", [0, 9, 19, 57, 99])
def test_the_slider_shows_the_right_ece(open_page, said, step):
    page = open_page()
    set_slider(page, step)
    temperature = (step + 1) / 10
    expected = expected_calibration_error(logits=said.logits / temperature, targets=said.targets).item()
    assert shown(page, "ece") == f"{expected * 100:.2f} %"
    assert page.locator("h4 [data-value=temperature]").first.inner_text() == f"{temperature:.1f}"
    nll = torch.nn.functional.cross_entropy(said.logits.double() / temperature, said.targets).item()
    assert shown(page, "nll") == f"{nll:.4f}"


def test_the_diagram_follows_the_slider(open_page):
    page = open_page()
    given = page.locator("[data-figure=given]").first
    scaled = page.locator("[data-figure=scaled]").first
    before, fixed = scaled.inner_html(), given.inner_html()
    set_slider(page, 60)
    assert scaled.inner_html() != before and given.inner_html() == fixed
    counts = page.locator("[data-table=scaled]").first.locator("td:nth-child(2)").all_text_contents()
    assert sum(int(count.replace(",", "")) for count in counts) == 1500


def test_the_slider_starts_where_the_likelihood_is_best_and_has_presets(open_page):
    page = open_page()
    start = shown(page, "ece")
    page.get_by_role("button", name="As given, 1.0").first.click()
    assert page.locator("#temperature-0").input_value() == "9"
    assert shown(page, "ece") != start
    best = page.get_by_role("button", name=re.compile("Best likelihood")).first
    best.click()
    assert shown(page, "ece") == start and best.get_attribute("aria-pressed") == "true"


def test_the_keyboard_moves_the_slider(open_page):
    page = open_page()
    slider = page.locator("#temperature-0")
    start = int(slider.input_value())
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == str(start + 2)
    assert page.locator("h4 [data-value=temperature]").first.inner_text() == f"{(start + 3) / 10:.1f}"
    page.keyboard.press("Home")
    assert slider.input_value() == "0" and slider.get_attribute("aria-valuetext").startswith("temperature 0.1, ECE ")


def test_hover_shows_the_counts_of_a_bin(open_page, said):
    page = open_page()
    host = page.locator("[data-figure=given]").first
    counts = page.evaluate(
        "JSON.parse(document.getElementById('report-data').textContent)"
        ".subjects[0].predictions.reliability.given.counts"
    )
    for place in (14, 9):
        host.locator(".bin").nth(place).locator(".hit").hover(force=True)
        tip = page.locator("#tip")
        assert tip.is_visible() and f"{counts[place]:,} samples" in tip.inner_text()
        assert f"Confidence {place / 0.15:.1f} % to {(place + 1) / 0.15:.1f} %" in tip.inner_text()
        assert "lit" in host.locator(".bin").nth(place).get_attribute("class")
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden() and host.locator(".lit").count() == 0


def test_the_keyboard_reads_figures(open_page):
    page = open_page()
    host = page.locator("[data-figure=given]").first
    host.focus()
    page.keyboard.press("End")
    assert "Confidence 93.3 % to 100.0 %" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "Confidence 86.7 % to 93.3 %" in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    matrix = page.locator("[data-figure=smoothing]")
    matrix.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert " to " in page.locator("#tip").inner_text() and "smoothing" in page.locator("#tip").inner_text()


def test_every_kind_of_figure_answers_to_pointer_and_keys(open_page):
    page = open_page()
    for kind in page.evaluate(
        "[...new Set([...document.querySelectorAll('[data-figure]')].map(p => p.dataset.figure))]"
    ):
        host = page.locator(f"[data-figure={kind}]").first
        host.scroll_into_view_if_needed()
        host.hover()
        assert page.locator("#tip").is_visible(), kind
        host.focus()
        page.keyboard.press("Home")
        assert page.locator("#tip").inner_text().strip(), kind
        page.keyboard.press("Escape")


def test_names_from_data_stay_text(open_page):
    page = open_page()
    assert page.locator("h4", has_text=HOSTILE).count() >= 1
    assert page.locator("img").count() == 0
    for kind in ("smoothing", "strengths", "superclasses"):
        host = page.locator(f"[data-figure={kind}]")
        host.focus()
        for key in ("Home", "ArrowRight", "ArrowDown", "End"):
            page.keyboard.press(key)
    assert page.evaluate("document.scripts.length") == 2  # no dialog either: `open_page` looks at the end


def test_the_policy_keeps_other_scripts_out(browser, file, tmp_path):
    """Were something to slip through, it would not run."""
    text = file.read_text(encoding="utf-8").replace("<main", "<script>window.slipped = 1</script><main", 1)
    other = tmp_path / "other.html"
    other.write_text(text, encoding="utf-8")
    page = browser.new_page()
    page.goto(other.as_uri())
    page.wait_for_selector("html.ready", state="attached")
    assert page.evaluate("window.slipped") is None
    page.close()


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(open_page):
    light, dark = open_page(scheme="light"), open_page(scheme="dark")
    assert background(light) == "rgb(255, 255, 255)" and background(dark) == "rgb(20, 23, 26)"
    dark.get_by_label("Light").check(force=True)
    assert background(dark) == "rgb(255, 255, 255)"
    light.get_by_label("Dark").check(force=True)
    assert background(light) == "rgb(20, 23, 26)"
    light.reload()
    light.wait_for_selector("html.ready", state="attached")
    assert background(light) == "rgb(20, 23, 26)"  # remembered
    light.get_by_label("Auto").check(force=True)
    assert background(light) == "rgb(255, 255, 255)"


CONTRAST = """
() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(node.tagName) || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [luminance(parse(ink)), luminance(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName} "${node.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return bad;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_page, scheme):
    assert open_page(scheme=scheme).evaluate(CONTRAST) == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE, {"width": 320, "height": 600}])
def test_nothing_sticks_out_sideways(open_page, viewport):
    page = open_page(viewport=viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for summary in page.locator("details > summary").all():
        summary.evaluate("node => { node.parentElement.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A report of three models on the same samples, and its page."""
    said = some_predictions(samples=600, name="sharp")
    others = [replace(said, scores=said.scores * factor, name=name) for factor, name in ((0.5, "fair"), (1.2, "worse"))]
    report = quick_report([said, *others])
    path = tmp_path_factory.mktemp("compared") / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    return report, path


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_a_comparison_of_three_fits_a_phone(browser, compared, width):
    report, path = compared
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(path.as_uri())
    page.locator("#comparison details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    cells = page.locator("#comparison .compared td span")
    assert cells.count() == 10 * 3 + 10 * 2
    for box in (cell.bounding_box() for cell in cells.all()):
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    names = page.locator("#comparison .compared td").evaluate_all(
        "all => all.map(one => [one.dataset.name, getComputedStyle(one, '::before').content])"
    )
    is_stacked = width < 720  # then every cell says whose it is: the heads of the columns are gone
    assert all(content == (f'"{name}"' if is_stacked else "none") for name, content in names)
    verdict = page.locator("#comparison .verdict").first.inner_text()
    assert verdict.startswith("fair is better calibrated than sharp. ECE is lower by ")
    assert report.comparison.scores[3].differences[0]["verdict"].removeprefix("fair's ") in verdict
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_groups_and_a_binary_model_are_shown(browser, tmp_path, width):
    path = tmp_path / "groups.html"
    report = quick_report([grouped_predictions()])
    path.write_text(render_page(report), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(path.as_uri())
    page.wait_for_selector("html.ready", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    groups = page.locator("section", has=page.get_by_role("heading", name="By region"))
    assert groups.locator("tbody th").first.inner_text() == "south"
    host = groups.locator("[data-figure=groups]")
    host.focus()
    page.keyboard.press("Home")
    ece = report.subjects[0].predictions.groups.scores[1].values[0]
    assert page.locator("#tip").inner_text().split("\n")[:2] == ["south", f"ECE {100 * ece:.2f} %"]
    page.locator("[data-figure=positive]").focus()
    page.keyboard.press("End")
    tip = page.locator("#tip").inner_text()
    assert tip.startswith("Probability 93.3 % to 100.0 %") and "frequency " in tip and "mean probability " in tip
    thresholds = page.get_by_role("region", name="Thresholds")
    assert thresholds.locator("tbody tr").count() == 10 and thresholds.locator("tr.best").count() == 1
    page.close()


def test_bins_of_few_samples_are_faint(browser, compared):
    report, path = compared
    page = browser.new_page(viewport=DESKTOP)
    page.goto(path.as_uri())
    counts = report.subjects[0].predictions.reliability.given.counts
    bins = page.locator("[data-figure=given]").first.locator(".bin")
    opacities = [float(one.evaluate("node => getComputedStyle(node).opacity")) for one in bins.all()]
    assert opacities == [0.3 if 0 < count < 10 else 1.0 for count in counts] and 0.3 in opacities and 1.0 in opacities
    given = [subject.predictions.reliability.given.counts for subject in report.subjects]
    few = sum(0 < count < 10 for counts in given for count in counts)
    assert page.locator("[data-figure=compared-reliability] circle.few").count() == few
    page.close()


def test_a_wide_table_hints_at_its_scroll(open_page):
    page = open_page(viewport=PHONE)
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    wide = page.locator(".scroll").evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth).length")
    assert wide > 0
    images = page.locator(".scroll").first.evaluate("one => getComputedStyle(one).backgroundAttachment")
    assert images == "local, local, scroll, scroll"


def test_figures_follow_the_width(open_page):
    page = open_page()
    page.set_viewport_size(PHONE)
    page.wait_for_function("document.querySelector('[data-figure=given] svg').getAttribute('width') < 370")
    assert page.locator("[data-figure=given] svg text").first.evaluate("n => getComputedStyle(n).fontSize") == "12px"


def test_the_tip_stays_on_a_phone(open_page):
    page = open_page(viewport=PHONE)
    host = page.locator("[data-figure=given]").first
    host.focus()
    for key in ("Home", "End"):
        page.keyboard.press(key)
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]


def test_folded_classes_are_drawn_when_unfolded(browser, tmp_path):
    names = tuple(f"class {number}" for number in range(30))
    path = tmp_path / "many.html"
    path.write_text(render_page(quick_report([some_predictions(class_names=names)])), encoding="utf-8")
    page = browser.new_page(viewport=DESKTOP)
    page.goto(path.as_uri())
    hidden = page.locator("#more-0 [data-figure] svg")
    assert hidden.count() == 0
    page.get_by_role("button", name="Show all 30 classes").click()
    page.wait_for_function("document.querySelectorAll('#more-0 [data-figure] svg').length === 18")
    assert page.evaluate("document.activeElement.dataset.figure") == "classes"
    page.close()


def test_it_prints_light_and_whole(open_page):
    page = open_page(scheme="dark")
    document = page.pdf(format="A4")
    assert document.startswith(b"%PDF") and len(document) > 50_000
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator("#temperature-0").is_hidden() and page.locator(".themes").is_hidden()


@pytest.mark.parametrize(("name", "viewport"), [("desktop", DESKTOP), ("phone", PHONE)])
def test_screenshots(open_page, tmp_path, name, viewport):
    """Kept in METACAL_SCREENSHOTS, if that names a folder, to be looked at."""
    folder = os.environ.get("METACAL_SCREENSHOTS") or tmp_path
    for scheme in ("light", "dark"):
        path = os.path.join(folder, f"report-{name}-{scheme}.png")
        open_page(viewport=viewport, scheme=scheme).screenshot(path=path, full_page=True)
        assert os.path.getsize(path) > 50_000
