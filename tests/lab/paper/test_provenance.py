"""What stands beside tables and figures about where they come from."""

from metacal.lab.paper import simulated_study
from metacal.lab.paper.draw_store import DrawStore
from metacal.lab.paper.exhibits import Draw
from metacal.lab.paper.provenance import prepare_provenance
from metacal.lab.paper.simulated_study import fit_draw
from metacal.lab.training.run_folder import RunStore


def test_seeds_are_those_of_draws_too(tmp_path):
    draws = [Draw(20, 3, 1000), Draw(30, 3, 1000), Draw(20, 1, 1000)]
    about = prepare_provenance(["metacal", "run", "a b"], "full", [], RunStore(tmp_path), draws)
    assert about["seeds"] == [1, 3] and about["command"] == "metacal run 'a b'" and about["runs"] == []


def test_time_is_that_of_draws_too(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_study, "STEPS", 20)
    draw, kept = Draw(20, 3, 1000), DrawStore(tmp_path)
    kept.write(draw, fit_draw(*draw))
    about = prepare_provenance(["metacal"], "full", [], RunStore(tmp_path), [draw, Draw(30, 3, 1000)])
    assert about["train_seconds"] == round(kept.read(draw)["seconds"], 3) > 0
