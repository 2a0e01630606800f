"""Tables in every format, and what stands beside them about where they come from."""

from tests.lab.paper.samples import cell, table

from metacal.files import write_json
from metacal.lab.paper import STUDIES, simulated
from metacal.lab.paper.exhibits import Draw, Plan, Published
from metacal.lab.paper.output import prepare_provenance, render_paper_page
from metacal.lab.paper.simulated import draw_file, fit_draw
from metacal.lab.paper.tables import markdown_table
from metacal.lab.training.run_folder import RunStore


def plan_of(*draws):
    return Plan(STUDIES["synthetic"], draws=draws)


def test_seeds_are_those_of_draws_too(tmp_path):
    plan = plan_of(Draw(20, 3, 1000), Draw(30, 3, 1000), Draw(20, 1, 1000))
    about = prepare_provenance(["metacal", "run", "a b"], [plan], RunStore(tmp_path))
    assert about["seeds"] == [1, 3]
    assert about["command"] == "metacal run 'a b'"
    assert about["scale"] == "full"
    assert about["runs"] == []


def test_time_is_that_of_draws_too(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "STEPS", 20)
    draw = Draw(20, 3, 1000)
    record = fit_draw(*draw)
    write_json(draw_file(tmp_path, draw), record)
    about = prepare_provenance(["metacal"], [plan_of(draw, Draw(30, 3, 1000))], RunStore(tmp_path))
    assert about["train_seconds"] == round(record["seconds"], 3) > 0


def test_published_and_difference_stand_beside_ours_in_every_format():
    data = table(cell(1.5, Published(1.25, 0.1, 1.3)), cell(2.0, Published(2.5, None, None), column="MC"))
    for text in (markdown_table(data), render_paper_page([data], "page")):
        assert "1.25 ± 0.10 (T 1.3) (+0.25)" in text and "2.50 (−0.50)" in text


def test_missing_cells_name_the_command_in_every_format_and_quoted_ones_are_not_missing():
    data = table(cell(None), cell(None, Published(4.6, None, None), column="Guo", is_quoted=True), command="metacal x")
    assert data.missing == 1
    for text in (markdown_table(data), render_paper_page([data], "page")):
        assert "1 cells lack seeds" in text and "metacal x" in text
    quoted = table(cell(None, is_quoted=True), command="metacal x")
    assert "metacal x" not in markdown_table(quoted) + render_paper_page([quoted], "page")
