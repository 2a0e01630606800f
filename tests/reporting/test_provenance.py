"""What stands beside tables and figures about where they come from."""

from metacal.reporting.provenance import prepare_provenance
from metacal.runs.paper import Draw
from metacal.runs.run_store import RunStore


def test_seeds_are_those_of_draws_too(tmp_path):
    draws = [Draw(20, 3, 1000), Draw(30, 3, 1000), Draw(20, 1, 1000)]
    about = prepare_provenance(["metacal", "run", "a b"], "full", [], RunStore(tmp_path), draws)
    assert about["seeds"] == [1, 3] and about["command"] == "metacal run 'a b'" and about["runs"] == []
