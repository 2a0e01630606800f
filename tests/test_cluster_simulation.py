"""The simulated cluster: schedules that can be checked by hand, and figures that are those of the simulation."""

import json
from pathlib import Path

import pytest
from benchmarks.cluster_runs import stand_ins
from benchmarks.cluster_simulation import measured_ratios, run_hours, schedule, simulate, whole_paper

from metacal.lab.paper import TABLES

ROOT = Path(__file__).parent.parent


def test_a_schedule_by_hand():
    """Two GPUs: 1+3+5 against 2+4, or longest first: 5+2+1 against 4+3."""
    found = schedule([1, 2, 3, 4, 5], 2)
    assert (found.makespan, found.first_idle, found.gpu_hours, found.stragglers) == (9, 6, 15, 1)
    found = schedule([5, 4, 3, 2, 1], 2)
    assert (found.makespan, found.first_idle, found.stragglers) == (8, 7, 1)
    assert found.utilisation == pytest.approx(15 / 16)


def test_more_gpus_than_runs():
    found = schedule([2, 2, 1], 5)
    assert (found.makespan, found.first_idle, found.stragglers, found.utilisation) == (2, 0, 2, 0.5)


def test_hours_are_the_published_ones():
    hours = run_hours(None)
    assert len(hours) == 210
    plain, ours = (
        [2.8, 8.9, 17.3, 9.2, 2.7, 8.9, 17.3, 9.3, 4.4, 0.1],
        [7, 21.9, 44.6, 29.7, 12.4, 26.4, 50.5, 39.4, 9.6, 0.3],
    )
    assert sum(hours) == pytest.approx(3 * (6 * sum(plain) + sum(ours)))
    assert sum(run_hours({10: 1.0, 100: 1.0})) == pytest.approx(21 * sum(plain))


def test_the_results_are_what_is_simulated(monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = simulate(measured_ratios()).rows
    saved = json.loads(Path("results/benchmarks/cluster_simulation.json").read_text())
    assert saved["parts"]["simulation"]["rows"] == rows


def test_every_run_of_the_main_tables_has_a_short_version_of_its_own():
    specs = stand_ins()
    planned = TABLES["main-ece"].specs("full")
    assert len({spec.hash for spec in specs}) == len(planned) == 210
    assert [(spec.method.name, spec.seed) for spec in specs] == [(spec.method.name, spec.seed) for spec in planned]


def test_the_whole_paper_is_the_main_tables_and_more(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("benchmarks.cluster_simulation.estimate_seconds", lambda specs, store: 3600.0 * len(specs))
    ratios = {10: 1.5, 100: 2.0}
    part = whole_paper(ratios)
    *exhibits, whole = part.rows
    main = exhibits[0]
    assert main["runs that no other above has"] == 210
    assert main["GPU-hours"] == pytest.approx(sum(run_hours(ratios)))
    assert whole["GPU-hours"] == pytest.approx(sum(row["GPU-hours"] for row in exhibits))
    assert f"about {whole['runs that no other above has']} hours" in part.notes[1]


def test_all_runs_on_killed_nodes_came_to_their_end():
    (row,) = json.loads((ROOT / "results/benchmarks/cluster_simulation.json").read_text())["parts"]["nodes"]["rows"]
    assert row["runs planned"] == row["different runs"] == row["complete"] == 210
    assert row["nodes killed"] >= 1 and row["resumed from a checkpoint"] >= 1
    assert row["equal to the bit"] == row["compared with one machine"]
