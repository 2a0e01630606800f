"""Tables of the paper: every number against one worked out from the run's own files, and how it is written."""

import csv
import io
import json
import shutil
import statistics
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats
from tests.lab.paper.samples import cell

from metacal.lab.cli.run import narrow
from metacal.lab.paper import STUDIES, TABLES
from metacal.lab.paper.simulated import prepare_study_table
from metacal.lab.paper.tables import best_of, csv_table, markdown_table, prepare_table
from metacal.lab.training import run
from metacal.lab.training.run_folder import RunStore

TEMPERATURES = [round(0.1 * step, 1) for step in range(1, 101)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Cross-entropy and Meta-Calibration on two seeds."""
    store = RunStore(tmp_path_factory.mktemp("store"))
    (part,) = narrow([TABLES["main-ece"]], rows=["svhn"], methods=["ce", "mc"], seeds=[0, 1])
    for spec in part.specs("smoke"):
        run(spec, store.folder(spec), resume=True)
    return store


def ece_percent(logits, targets, num_bins=15):
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    sure, right = probs.max(axis=1), probs.argmax(axis=1) == targets
    bins = np.clip(np.ceil(sure * num_bins).astype(int), 1, num_bins)
    parts = ((bins == one) for one in range(1, num_bins + 1))
    return 100 * sum(abs(right[mine].mean() - sure[mine].mean()) * mine.mean() for mine in parts if mine.any())


METRICS = ("ece_percent", "ece_after_temperature_percent", "confidence_minus_accuracy_percent", "error_percent")


@pytest.mark.parametrize("metric", METRICS)
def test_cells_are_what_the_predictions_say(store, metric):
    (part,) = narrow([TABLES["image-methods"]], rows=["svhn"], methods=["ce", "mc"], seeds=[0, 1])
    line, cells = part.metrics.index(metric), part.plan("smoke").cells
    for found, column in zip(prepare_table(part.plan("smoke"), store).cells[line], part.columns, strict=True):
        figures, heats = [], []
        for seed in (0, 1):
            folder = store.folder(next(cell.specs[seed] for cell in cells if cell.column is column))
            val, test = folder.read_predictions("val"), folder.read_predictions("test")
            logits, targets = test.logits.double().numpy(), test.targets.numpy()
            if metric == "error_percent":
                figures.append(100 * (logits.argmax(axis=1) != targets).mean())
                continue
            if metric == "confidence_minus_accuracy_percent":
                sure = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
                figures.append(100 * (sure.mean() - (logits.argmax(axis=1) == targets).mean()))
                continue
            eces = [ece_percent(val.logits.double().numpy() / heat, val.targets.numpy()) for heat in TEMPERATURES]
            heats.append(TEMPERATURES[int(np.argmin(eces))])
            heat = heats[-1] if metric == "ece_after_temperature_percent" else 1.0
            figures.append(ece_percent(logits / heat, targets))
        assert found.mean == pytest.approx(statistics.fmean(figures), abs=1e-3)
        assert found.std == pytest.approx(abs(figures[0] - figures[1]) / 2, abs=1e-3)
        if metric == "ece_after_temperature_percent":
            assert found.temperature == pytest.approx(statistics.fmean(heats))


def test_a_note_names_the_files_that_were_read(store, tmp_path):
    (part,) = narrow([TABLES["main-ece"]], rows=["svhn"], methods=["ce"], seeds=[0])
    assert "Data:" not in prepare_table(part.plan("smoke"), store).note, "the digits have no file"
    other = RunStore(tmp_path)
    (spec,) = part.specs("smoke")
    shutil.copytree(store.folder(spec).path, other.folder(spec).path)
    about = other.folder(spec).path / "environment.json"
    about.write_text(
        json.dumps({**json.loads(about.read_text()), "data": ["/some/where/news20.tar.gz", "d/glove.txt"]})
    )
    other.folder(spec).write_scores(other.folder(spec).read_scores())  # with the checksum of what was changed
    assert prepare_table(part.plan("smoke"), other).note.endswith("Data: glove.txt, news20.tar.gz.")


def test_a_changed_setting_is_said_and_does_not_stand_against_the_published(store):
    (part,) = narrow([TABLES["main-ece"]], rows=["svhn"], methods=["ce", "mc"], seeds=[0, 1])
    assert prepare_table(part.plan(), store).title == "Table 1: Test ECE"
    changed = prepare_table(part.plan("full", {"epochs": 3}), store)
    assert "[epochs=3: reduced or changed, not comparable with the published figures]" in changed.title
    assert "not the published setting" in changed.note and changed.cells[0][0].is_reduced
    same = prepare_table(part.plan("full", {"epochs": 350}), store)
    assert "[" not in same.title and not same.cells[0][0].is_reduced
    smoke = prepare_table(part.plan("smoke"), store)
    assert all(each.mean is not None and each.difference is None for each in smoke.cells[0])
    lines = list(csv.DictReader(io.StringIO(csv_table(smoke))))
    assert {(line["difference"], line["setting"]) for line in lines} == {("", "reduced or changed")}


PUBLISHED = ("Oracle", "Cross-Entropy", "LS", "MC")


def test_what_the_paper_does_not_have_is_not_as_published(tmp_path):
    (part,) = narrow([TABLES["outer-step"]], rows=["newsgroups"], methods=["mc", "mc-steady"])
    data = prepare_table(part.plan("cpu"), RunStore(tmp_path))
    assert {each.column: each.setting for each in data.cells[0]} == {
        "MC": "as published",
        "MC, steady": "not in the paper",
    }
    simulated = csv.DictReader(io.StringIO(csv_table(prepare_study_table(STUDIES["synthetic"].plan(), tmp_path))))
    assert {(line["row"] == "as published", line["method"] in PUBLISHED, line["setting"]) for line in simulated} == {
        (True, True, "as published"),
        (True, False, "not in the paper"),
        (False, True, "not in the paper"),
        (False, False, "not in the paper"),
    }


def test_text_is_run_in_full_at_the_cpu_scale():
    (part,) = narrow([TABLES["main-ece"]], rows=["cifar-10/resnet18", "20-newsgroups"], methods=["mc"])
    data = prepare_table(part.plan("cpu"), RunStore("none"))
    assert [line[0].is_reduced for line in data.cells] == [True, False]


def test_the_simulated_study_says_that_smoke_is_reduced(tmp_path):
    assert "[smoke scale: reduced" in prepare_study_table(STUDIES["synthetic"].plan("smoke"), tmp_path).title
    assert "[" not in prepare_study_table(STUDIES["synthetic"].plan("cpu"), tmp_path).title


def test_what_ties_as_printed_is_bold_together():
    assert best_of((cell(1.001), cell(1.004, column="LS"), cell(1.1, column="MC"))) == {"CE", "LS"}
    assert best_of((cell(1.0), cell(None, column="MC"))) == set()


@pytest.mark.parametrize(
    ("metric", "best"), [("ece_percent", "LS"), ("accuracy_percent", "CE"), ("confidence_minus_accuracy_percent", "MC")]
)
def test_what_is_best_depends_on_the_figure(metric, best):
    cells = (cell(3.0), cell(-2.0, column="LS"), cell(1.0, column="MC"))
    assert best_of(tuple(replace(each, metric=metric) for each in cells)) == {best}


def test_published_ranks_stand_beside_ours(store):
    data = prepare_table(TABLES["main-ece"].plan("smoke"), store)
    assert data.ranks is None and data.published_ranks[-1] == 1.3
    assert "average rank, published" in markdown_table(data) and "average rank, ours" not in markdown_table(data)


@pytest.fixture(scope="module")
def protocol(store):
    """A table of our own on two seeds, and by method the validation and test predictions of each seed."""
    (part,) = narrow([TABLES["published-code"]], rows=["cifar-10"], methods=["ce", "mc"], seeds=[0, 1])
    plan = part.plan("smoke")
    folders = {cell.column.label: [store.folder(spec) for spec in cell.specs] for cell in plan.cells}
    predictions = {
        label: [[folder.read_predictions(name) for name in ("val", "test")] for folder in runs]
        for label, runs in folders.items()
    }
    cells = {line[0].metric: {each.column: each for each in line} for line in prepare_table(plan, store).cells}
    return cells, predictions


def nll(logits, targets):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets]).mean())


def risks(logits, targets):
    """Share wrong among the 1, 2, ... most confident."""
    sure = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    wrong = (logits.argmax(axis=1) != targets)[np.argsort(-sure, kind="stable")]
    return wrong.cumsum() / np.arange(1, len(wrong) + 1)


def coverage(logits, targets):
    fits = np.flatnonzero(risks(logits, targets) <= 0.01)
    return 100 * (fits[-1] + 1) / len(targets) if len(fits) else 0.0


ORACLES = {
    "nll": nll,
    "ece_percent": ece_percent,
    "aurc_percent": lambda logits, targets: 100 * risks(logits, targets).mean(),
    "coverage_at_1_risk_percent": coverage,
}


@pytest.mark.parametrize("metric", ORACLES)
@pytest.mark.parametrize("scaled", [False, True])
def test_tables_of_our_own_compare_seed_by_seed(protocol, metric, scaled):
    cells, predictions = protocol
    name = metric
    if scaled:
        name = f"{metric.removesuffix('_percent')}_after_temperature{'_percent' * metric.endswith('_percent')}"
    figures = {}
    for label, runs in predictions.items():
        figures[label] = []
        for val, test in runs:
            val_logits, logits = val.logits.double().numpy(), test.logits.double().numpy()
            if scaled:
                fit = optimize.minimize_scalar(
                    lambda slope, logits=val_logits, val=val: nll(logits * slope, val.targets.numpy()),
                    bounds=(1e-3, 20),
                    method="bounded",
                    options={"xatol": 1e-9},
                )
                logits = logits * fit.x
            figures[label].append(ORACLES[metric](logits, test.targets.numpy()))
        assert cells[name][label].values == pytest.approx(figures[label], rel=1e-3, abs=1e-3)
    paired = np.subtract(figures["MC"], figures["CE"])
    mean, half = cells[name]["MC"].paired_interval()
    assert mean == pytest.approx(paired.mean(), abs=2e-3)
    assert half == pytest.approx(stats.t.ppf(0.975, 1) * paired.std(ddof=1) / 2**0.5, abs=2e-2)
    assert cells[name]["CE"].paired_interval() is None


def test_a_paired_difference_stands_beside_ours_in_every_format(store):
    (part,) = narrow([TABLES["published-code"]], rows=["cifar-10"], methods=["ce", "mc"], seeds=[0, 1])
    data = prepare_table(part.plan("smoke"), store)
    assert "In brackets: mean difference from CE over the common seeds" in markdown_table(data)
    mc = data.cells[0][1]
    mean, half = mc.paired_interval()
    assert f"[{mean:+.2f} ± {half:.2f}]".replace("-", "−") in markdown_table(data)
    lines = list(csv.DictReader(io.StringIO(csv_table(data))))
    assert [float(line["paired_half_interval"] or "nan") for line in lines[:2]] == pytest.approx(
        [float("nan"), half], nan_ok=True
    )
    (alone,) = narrow([TABLES["published-code"]], rows=["cifar-10"], methods=["mc"], seeds=[0, 1])
    assert prepare_table(alone.plan("smoke"), store).cells[0][0].paired_interval() is None
