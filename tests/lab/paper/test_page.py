"""What stands beside tables and figures about where they come from."""

from metacal.lab.paper import STUDIES, simulated
from metacal.lab.paper.exhibits import Draw, Plan
from metacal.lab.paper.page import prepare_provenance
from metacal.lab.paper.simulated import DrawStore, fit_draw
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
    draw, kept = Draw(20, 3, 1000), DrawStore(tmp_path)
    kept.write(draw, fit_draw(*draw))
    about = prepare_provenance(["metacal"], [plan_of(draw, Draw(30, 3, 1000))], RunStore(tmp_path))
    assert about["train_seconds"] == round(kept.read(draw)["seconds"], 3) > 0
