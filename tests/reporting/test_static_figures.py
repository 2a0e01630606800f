"""Every figure as PNG and SVG: written, not empty, showing the numbers, the same each time."""

import warnings
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from PIL import Image
from tests.reporting.samples import CIFAR_10, HOSTILE, grouped_predictions, quick_report, some_predictions, some_run

from metacal.errors import StorageError
from metacal.reporting.prediction_plots import plot_reliability, plot_risk_coverage
from metacal.reporting.run_plots import plot_smoothing
from metacal.reporting.static_figures import write_figures

PREDICTION_KINDS = ("reliability", "risk-coverage")
RUN_KINDS = ("smoothing", "superclasses", "l2")


@pytest.fixture(scope="module")
def report():
    hostile = (HOSTILE, "$x_1$", "50 % $", "日本", *CIFAR_10[4:])
    run = some_run(class_names=hostile, predictions=some_predictions(samples=300, class_names=hostile))
    return quick_report([run, some_predictions(samples=200, name="../odd <name>/x")])


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "new"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return folder, write_figures(report, folder)


def test_all_of_them_inside_the_folder(written):
    folder, paths = written
    stems = [f"comparison-{kind}" for kind in ("ece", "reliability", "risk-coverage")]
    stems += [f"mc-non-uniform-seed-0-{kind}" for kind in RUN_KINDS + PREDICTION_KINDS]
    stems += [f"odd-name-x-{kind}" for kind in PREDICTION_KINDS]
    assert [path.name for path in paths] == [f"{stem}.{suffix}" for stem in stems for suffix in ("png", "svg")]
    assert all(path.parent == folder and path.is_file() for path in paths)


def test_groups_and_the_positive_class_have_figures(tmp_path):
    written = write_figures(quick_report([grouped_predictions()]), tmp_path)
    kinds = ("reliability", "groups", "positive", "risk-coverage")
    assert [path.name for path in written if path.suffix == ".png"] == [f"grouped-{kind}.png" for kind in kinds]
    texts = {text.text for text in ElementTree.parse(tmp_path / "grouped-groups.svg").iter() if text.text}
    assert {"south", "north", "east", "ECE"} <= texts


def test_bins_of_few_samples_are_faint():
    (subject,) = quick_report([some_predictions(samples=300)]).subjects
    given = subject.predictions.reliability.given
    upper = plot_reliability(subject.predictions.reliability).axes[0]
    few = sum(0 < count < 10 for count in given.counts)
    bars = [patch for patch in upper.patches if patch.get_hatch() is None]
    assert few > 0 and [bar.get_alpha() for bar in bars].count(0.3) == few
    assert len(bars) == sum(count > 0 for count in given.counts)


def test_they_can_be_opened_and_are_not_blank(written):
    for path in written[1]:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 150 and len(image.convert("RGB").getcolors(2**20)) > 20
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_names_are_taken_literally(written):
    texts = {
        text.text
        for text in ElementTree.parse(written[0] / "mc-non-uniform-seed-0-smoothing.svg").iter()
        if text.tag.endswith("text")
    }
    assert {"$x_1$", "50 % $", "日本", "deer"} <= texts


def test_the_same_numbers_give_the_same_files(report, written, tmp_path):
    alone = replace(report, subjects=report.subjects[1:], comparison=None)
    for path in write_figures(alone, tmp_path):
        assert path.read_bytes() == (written[0] / path.name).read_bytes(), path.name


def test_axes_show_the_prepared_numbers(report):
    part, run = report.subjects[0].predictions, report.subjects[0].run
    upper, after, lower, _ = plot_reliability(part.reliability).axes
    assert upper.get_title() == f"As given: ECE {100 * part.reliability.given.ece:.2f} %"
    held = [value for value in part.reliability.given.accuracies if value is not None]
    bars = sorted((bar.get_x(), bar.get_height()) for bar in upper.patches if bar.get_hatch() is None)
    assert [height for _, height in bars] == held
    assert [bar.get_height() for bar in lower.patches] == [n / 300 for n in part.reliability.given.counts]
    assert "At temperature" in after.get_title()
    (axis,) = plot_risk_coverage([("one", part.risk_coverage)]).axes
    assert axis.lines[0].get_ydata().tolist() == part.risk_coverage.risks
    assert plot_smoothing(run.smoothing).axes[0].images[0].get_array().tolist() == run.smoothing.values


def test_a_folder_that_cannot_be_made(report, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match=r"file/.*png could not be written: "):
        write_figures(report, tmp_path / "file")


def test_a_wrong_call_of_a_reliability_diagram_shows_the_right_one():
    from metacal.errors import InvalidTypeError
    from metacal.reporting import reliability_diagram

    with pytest.raises(InvalidTypeError, match=r"reliability_diagram\(logits=\.\.\. or probs=\.\.\., targets=\.\.\.,"):
        reliability_diagram([[0.9, 0.1]], [0])


def test_a_reliability_diagram_of_arrays_into_given_axes():
    from matplotlib.figure import Figure

    from metacal.reporting import reliability_diagram

    axis = Figure().subplots()
    drawn = reliability_diagram(probs=[[0.9, 0.1]] * 4, targets=[0, 0, 0, 1], num_bins=10, ax=axis)
    assert drawn is axis
    assert axis.get_title(loc="left") == "ECE 15.00 %"
    heights = {round(bar.get_height(), 9) for bar in axis.patches}
    assert heights == {0.75, 0.15}
