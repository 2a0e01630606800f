"""The paper's tables as data: all of them, with every published figure in its place."""

import pytest

from metacal.experiments import TABLES
from metacal.runs.paper import average_ranks, published_figures

ELSEWHERE = {"synthetic"}


def test_every_published_table_is_here():
    assert {table.label for table in TABLES.values()} == {key[0] for key in published_figures()} - ELSEWHERE


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


@pytest.mark.parametrize("preset", ["full", "cpu", "smoke"])
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_a_run(name, preset):
    table = TABLES[name]
    specs = table.specs(preset)
    assert specs and len({spec.hash for spec in specs}) == len(specs)


def test_runs_are_shared_between_tables():
    main = {spec.hash for spec in TABLES["main-ece"].specs()}
    assert len(main) == 210
    for name in ("main-error", "main-ece-temperature", "main-classwise-ece", "training-times"):
        assert {spec.hash for spec in TABLES[name].specs()} <= main
    assert len({spec.hash for spec in TABLES["ablation"].specs()} & main) == 12


def test_what_is_quoted_is_never_run():
    table = TABLES["guo-setups"]
    quoted = [column for column in table.columns if column.settings is None]
    assert len(quoted) == 3 and all(table.spec(table.rows[0], column, 0) is None for column in quoted)
    assert len(table.specs()) == 24
