"""The paper's tables and figures as data: all of them, with every published figure in its place."""

import pytest

from metacal.lab.cli.run import narrow
from metacal.lab.paper import EXHIBITS, FIGURES, STUDIES, TABLES, exhibits
from metacal.lab.paper.exhibits import published_figures
from metacal.lab.paper.output import prepare_exhibit
from metacal.lab.paper.tables import average_ranks
from metacal.lab.training.recipes import build_spec
from metacal.lab.training.run_folder import RunStore

FIGURE_LABELS = [  # in the order of the paper
    "ece-error-behaviour",
    "ece-dece-analysis",
    "label-analysis",
    "dist-smoothing-analysis",
    "superclass-smoothing",
    "synthetic",
    "l2-analysis",
    "cifar100ece",
    "sbece_analysis",
    "sbece_analysis2",
]


def test_every_published_table_is_here():
    ours = {exhibit.label for exhibit in EXHIBITS.values() if exhibit.kind == "table" and exhibit.number}
    assert ours == {key[0] for key in published_figures()}


def test_every_figure_is_here_in_the_papers_order():
    figures = sorted((e for e in EXHIBITS.values() if e.kind == "figure" and e.number), key=lambda e: int(e.number))
    assert [figure.label for figure in figures] == FIGURE_LABELS
    assert [figure.number for figure in figures] == [str(number) for number in range(1, 11)]


def specs_of(table, row, scale="full"):
    """By column, the spec of the first seed."""
    return {cell.column.label: next(iter(cell.specs), None) for cell in table.plan(scale).cells if cell.row is row}


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_cost_says_how_many_runs_or_draws_there_are(name):
    plan = EXHIBITS[name].plan()
    count = f"{len(plan.specs)} run" if plan.specs else f"{len(plan.draws)} draw"
    assert EXHIBITS[name].cost.removesuffix("s") == count


@pytest.mark.parametrize("name", FIGURES)
def test_figures_need_no_runs_of_their_own(name):
    shared = {spec.hash for table in TABLES.values() for spec in table.specs()}
    assert {spec.hash for spec in FIGURES[name].specs()} <= shared


def test_the_simulated_study_draws_each_size_with_each_seed_on_many_points():
    study = STUDIES["synthetic"]
    draws = study.plan().draws
    assert len(draws) == len(study.sizes) * len(study.seeds) and study.test_points >= 100_000
    assert set(STUDIES["synthetic-boundary"].plan().draws) <= set(draws)
    assert len(study.plan("smoke").draws) == 1 and study.specs() == []


@pytest.mark.parametrize("name", TABLES)
def test_every_published_figure_has_its_cell(name):
    table = TABLES[name]
    ours = {
        (table.label, row.dataset, row.model, column.label, metric)
        for row in table.rows
        for column in table.columns
        for metric in table.metrics
        if table.published(row, column, metric) is not None
    }
    theirs = {key for key in published_figures() if key[0] == table.label and key[1] != "average rank"}
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.ranked])
def test_the_published_ranks_follow_from_the_published_figures(name):
    table = TABLES[name]
    values = [[table.published(row, c, table.metrics[0]).mean for c in table.columns] for row in table.rows]
    said = [published_figures()[table.label, "average rank", "", c.label, "average_rank"].mean for c in table.columns]
    assert [round(rank, 1) for rank in average_ranks(values)] == pytest.approx(said, abs=0.051)


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_a_run(name, scale):
    table = TABLES[name]
    specs = table.specs(scale)
    assert specs and len({spec.hash for spec in specs}) == len(specs)


@pytest.mark.parametrize("dataset", ["digits", "20newsgroups"])
def test_what_has_no_cpu_size_is_run_in_full(dataset):
    settings = {"dataset": dataset, "method": "ce", "seed": 1}
    assert exhibits.scale_settings(settings, "cpu") == settings


def test_runs_are_shared_between_tables():
    main = {spec.hash for spec in TABLES["main-ece"].specs()}
    assert len(main) == 210
    for name in ("main-error", "main-ece-temperature", "main-classwise-ece", "training-times"):
        assert {spec.hash for spec in TABLES[name].specs()} <= main
    assert len({spec.hash for spec in TABLES["ablation"].specs()} & main) == 12


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
@pytest.mark.parametrize("dataset", ["CIFAR-10", "20 Newsgroups"])
def test_at_equal_data_only_the_method_differs_from_meta_calibration(dataset, scale):
    table = TABLES["equal-data"]
    row = next(row for row in table.rows if row.dataset == dataset)
    specs = specs_of(table, row, scale)
    equal, mc = specs["CE, equal data"], specs["MC"]
    as_mc = {"method": mc.method, "hold_out_meta": False, "outer": mc.outer}
    assert equal.model_copy(update=as_mc) == mc
    assert equal.hold_out_meta and not specs["CE"].hold_out_meta and equal.hash != specs["CE"].hash
    if dataset == "CIFAR-10" and scale == "cpu":
        assert specs["CE"].train_size == equal.train_size + equal.meta_size


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
def test_only_the_outer_step_differs_from_the_published_run(scale):
    table = TABLES["outer-step"]
    specs = specs_of(table, table.rows[0], scale)
    for label in ("MC", "MC-S"):
        published = specs[label]
        assert published.outer == "paper"
        for name, outer in (("default", "first"), ("steady", "steady")):
            ours = specs[f"{label}, {name}"]
            assert ours.outer == outer and ours.model_copy(update={"outer": "paper"}) == published


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
@pytest.mark.parametrize("row", [0, 1])
def test_only_the_switches_differ_from_the_papers_algorithm(row, scale):
    table = TABLES["published-code"]
    specs = specs_of(table, table.rows[row], scale)
    assert specs.pop("CE").method.name == "ce"
    assert {label: spec.published for label, spec in specs.items()} == {
        "MC": (),
        "MC, leak": ("leak",),
        "MC, statistics": ("statistics",),
        "MC, replay": ("replay",),
        "MC, all": ("leak", "replay", "statistics"),
        "MC, leak frozen": ("frozen", "leak"),
    }
    for spec in specs.values():
        assert spec.model_copy(update={"published": ()}) == specs["MC"]


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
def test_baselines_are_trained_on_equal_labels_and_chosen_alike(scale):
    table = TABLES["baselines"]
    specs = specs_of(table, table.rows[0], scale)
    assert len({spec.hash for spec in specs.values()}) == len(table.columns)
    assert not any(spec.sets_meta_aside for spec in specs.values())
    assert {(spec.select, spec.train_size, spec.val_size, spec.epochs) for spec in specs.values()} == {
        (each.select, each.train_size, each.val_size, each.epochs) for each in [specs["Ours"]]
    }
    assert specs["Ours"].select == "refinement"


def test_one_cell_builds_each_spec_once(monkeypatch):
    built = []
    monkeypatch.setattr(exhibits, "build_spec", lambda settings: built.append(settings) or build_spec(settings))
    (part,) = narrow([TABLES["main-ece"]], rows=["svhn"], methods=["mc"], seeds=[0])
    for scale in ("full", "smoke"):
        plan = part.plan(scale)
        prepare_exhibit(plan, RunStore("none"))
        assert len(plan.specs) == 1
    assert len(built) == 2


def test_what_is_quoted_is_never_run():
    table = TABLES["guo-setups"]
    quoted = [column for column in table.columns if column.settings is None]
    specs = specs_of(table, table.rows[0])
    assert len(quoted) == 3
    assert all(specs[column.label] is None for column in quoted)
    assert len(table.specs()) == 24
