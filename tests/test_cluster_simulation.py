"""The simulated cluster: schedules that can be checked by hand, and figures that are those of the simulation."""

import json
from pathlib import Path

import pytest
from benchmarks.cluster_simulation import measured_ratios, run_hours, schedule, simulate

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
