"""Figures of the paper, from stored runs to drawings, and the page of tables and figures."""

import base64
import re
from dataclasses import replace

import pytest
import torch

from metacal.files import write_json
from metacal.functional import dece, expected_calibration_error
from metacal.lab.paper import EXHIBITS, FIGURES, STUDIES, TABLES
from metacal.lab.paper.exhibits import Draw
from metacal.lab.paper.figures import (
    BATCHES,
    Band,
    Chart,
    figures_of_epoch,
    image_of,
    plot_charts,
    plot_figure,
    prepare_figure,
    ranks,
)
from metacal.lab.paper.output import prepare_exhibit, render_paper_page, write_exhibits
from metacal.lab.paper.simulated import SweepLine, draw_file, plot_sweep
from metacal.lab.training import run
from metacal.lab.training.run_folder import RunStore
from metacal.reporting.runs import correlation


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two seeds of what figures are drawn from, and some draws of simulated data."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    for figure in FIGURES.values():
        for spec in figure.specs("smoke"):
            if spec.seed < 2:
                run(spec, store.folder(spec), resume=True)
    methods = {name: {"accuracy": 0.8, "ece": 0.01, "weight": [1.0, 0.5], "bias": 0.1} for name in ("oracle", "ce")}
    methods |= {
        name: {"accuracy": 0.8, "ece": 0.03, "weight": [1.0, 0.5], "bias": 0.1} for name in ("ls", "mc", "ce-n")
    }
    points = [[0.5, -0.5, 0.0], [-1.0, 1.0, 1.0]]
    for size in (20, 30):
        for seed in range(3):
            draw = Draw(size, seed, 2000)
            record = {"size": size, "seed": seed, "test_points": 2000, "methods": methods, "points": points}
            write_json(draw_file(store.root, draw), record)
    return store


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn(store, name):
    data = prepare_figure(FIGURES[name].plan("smoke"), store)
    assert 0 < data.done < data.wanted
    assert "smoke scale: reduced" in data.title
    figure = plot_figure(data)
    assert (figure is None) == (not data.panels) == (name == "superclass-smoothing")  # the digits have no superclasses
    if figure is not None:
        assert all(axis.has_data() for axis in figure.axes)
        # The image is used without its page too.
        assert b"Not the published setting: smoke scale" in image_of(data, "svg")


def test_what_is_behind_the_gap(store):
    data = prepare_figure(FIGURES["generalisation-gap"].plan("smoke"), store)
    error, ece = data.panels
    folders = [store.folder(spec) for spec in FIGURES["generalisation-gap"].specs("smoke") if spec.seed < 2]
    values = [folder.read_history()[1]["val_ece"] for folder in folders]
    assert error.title == "Error: CIFAR-10 ResNet18, CE" and ece.title == "ECE: CIFAR-10 ResNet18, CE"
    assert ece.bands[1].name == "validation" and ece.bands[1].mean[1] == pytest.approx(sum(values) / 2)
    assert ece.bands[1].std[1] == pytest.approx(abs(values[0] - values[1]) / 2)


def test_agreement_is_measured_on_minibatches_of_the_validation_set(store):
    folder = next(store.folder(spec) for spec in FIGURES["dece-agreement"].specs("smoke") if spec.seed == 0)
    found = figures_of_epoch(folder, 2, {"DECE": dece})
    assert found.shape == (2, BATCHES) and found[0].std() > 0
    logits, targets = folder.read_epoch(2)["val_logits"], folder.read_predictions("val").targets
    some = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))[: len(targets) // 2]
    assert found[0, 0] == pytest.approx(float(expected_calibration_error(logits=logits[some], targets=targets[some])))
    assert found[1, 0] == pytest.approx(float(dece(logits=logits[some], targets=targets[some])), rel=1e-6)


def test_correlations_are_scipys():
    from scipy import stats

    first, second = torch.rand(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    second = (second + first).round(decimals=1)  # with ties
    assert float(correlation(first, second)) == pytest.approx(stats.pearsonr(first, second).statistic)
    assert float(correlation(ranks(first), ranks(second))) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_the_study_as_table_sweep_and_boundary(store):
    few = {"sizes": (20, 30), "seeds": (0, 1, 2), "test_points": 2000}
    studies = {name: replace(study, **few) for name, study in STUDIES.items()}
    table = prepare_exhibit(studies["synthetic"].plan(), store)
    lines = {(line[0].row, line[0].metric): line for line in table.cells}
    ours = lines["2n = 40 labels", "ece_percent"]
    assert [cell.mean for cell in ours] == pytest.approx([1.0, 1.0, 3.0, 3.0, 3.0]) and ours[0].published is None
    assert lines["as published", "ece_percent"][3].published.mean == 1.40
    assert lines["as published", "ece_percent"][4].text() == "-", "the paper has no such column"
    sweep = prepare_exhibit(studies["synthetic-sweep"].plan(), store)
    assert sweep.panels[3].mean == pytest.approx([0.03, 0.03]) and sweep.panels[0].draws == [3, 3]
    for name in ("synthetic-sweep", "synthetic-boundary"):
        assert image_of(prepare_exhibit(studies[name].plan(), store), "png").startswith(b"\x89PNG")


def test_panels_that_stopped_early_at_different_epochs_are_drawn_together():
    bands = [Band(name, [0.1] * epochs, [0.01] * epochs) for name, epochs in (("short", 3), ("long", 5))]
    (axis,) = plot_charts([Chart("Strength", bands, drops=[2, 4])]).axes
    assert [len(line.get_xdata()) for line in axis.get_lines()[:2]] == [3, 5]
    assert len(axis.get_lines()) == 4  # with both drops


def test_the_sweep_says_how_many_draws_are_behind_it():
    line = SweepLine("ce", [20, 30], [0.1, 0.05], [0.1, 0.04], [0.1, 0.06], [1, 3])
    assert "mean of 1 to 3 draws" in plot_sweep([line]).axes[0].get_title(loc="left")


def test_nothing_to_draw_is_said_and_files_are_written(store, tmp_path):
    empty = prepare_exhibit(FIGURES["l2-histograms"].plan("smoke"), RunStore(tmp_path / "none"))
    full = prepare_exhibit(FIGURES["l2-histograms"].plan("smoke"), store)
    assert empty.panels == [] and plot_figure(empty) is None
    write_exhibits([full, prepare_exhibit(TABLES["ablation"].plan("smoke"), store)], tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"l2-histograms.png", "l2-histograms.svg"}
    assert (tmp_path / "out" / "ablation.md").exists()
    page = render_paper_page([replace(empty, command="metacal run l2-histograms")], "Empty")
    assert "nothing to draw yet" in page and "metacal run l2-histograms" in page


def test_the_page_lays_ours_beside_the_published(store):
    prepared = [prepare_exhibit(EXHIBITS[name].plan("smoke"), store) for name in ("main-ece", "reliability")]
    page = render_paper_page(prepared, "<b>title</b>")
    assert "&lt;b&gt;title&lt;/b&gt;" in page and "<b>title" not in page
    assert "<small>1.17 ± 0.26</small>" in page and "not comparable with the published figures" in page
    assert "(−" not in page and "(+" not in page  # a reduced figure is not comparable with a published one
    image = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert b"<svg" in base64.b64decode(image.group(1))
    assert "<script" not in page and "http://" not in re.sub(r'base64,[^"]+', "", page)
