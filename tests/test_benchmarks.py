"""How benchmarks time, repeat and save: with a clock and a machine that do as they are told."""

import json

import pytest
from benchmarks import report, timing
from benchmarks.report import Part, Target, measured, publish, save_about
from benchmarks.timing import interleave, interleave_runs


class Clock:
    """Stands still but for what is called."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def variant(self, name, costs):
        costs = iter(costs)

        def call():
            self.calls.append(name)
            self.now += next(costs)
            return self.now

        return call


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: found.now)
    return found


def test_the_best_turn_counts_and_who_is_slow_takes_fewer(clock):
    variants = {"quick": clock.variant("quick", [3, 1, 2]), "slow": clock.variant("slow", [9, 5])}
    found = interleave(variants, rounds=3, patience=10.0)
    assert clock.calls == ["quick", "slow", "quick", "slow", "quick"]
    assert (found["quick"].seconds, found["quick"].rounds) == (1, 3)
    assert (found["slow"].seconds, found["slow"].rounds) == (5, 2)


def test_a_run_costs_the_mean_of_the_best_of_each_of_its_blocks(clock):
    # The first call of a run is dear; the machine is busy in the second block of one and the first of the other.
    costs = iter([[4, 1, 9, 1], [40, 1, 1, 1]])
    runs = {
        "plain": lambda: clock.variant("plain", [1] * 4),
        "meta": lambda: clock.variant("meta", next(costs)),
    }
    assert interleave_runs(runs, length=4, rounds=2, block=2) == {"plain": 1.0, "meta": (4 + 1 + 1 + 1) / 4}
    assert clock.calls == ["plain", "plain", "meta", "meta"] * 4


@pytest.mark.parametrize(("wait", "shares", "kept"), [(0.0, [0.5], 0.5), (60.0, [0.5, 0.01], 0.01)])
def test_a_part_is_measured_again_while_there_is_time_to_wait(monkeypatch, wait, shares, kept):
    monkeypatch.setattr(report, "wait_for_quiet", lambda *_: None)
    left = iter(shares)
    monkeypatch.setattr(report.OthersMeter, "share", lambda _: next(left))
    asked = []
    part = measured(lambda: asked.append(1) or Part("A part", []), wait)
    assert part.others_share == kept and len(asked) == len(shares)
    assert (part.warning is None) == (kept < report.BUSY)


def missed_part():
    return {"a": Part("A part", [{"what": "ours"}], [Target("ratio", 1.0, 2.0, at_least=True)])}


def test_a_missed_target_is_saved_and_told_by_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--threads", "1"])
    with pytest.raises(SystemExit, match="1"):
        publish("name", missed_part(), {"peer": "2.0"}, tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["about"]["command"] == "python -m benchmarks.name --threads 1" and found["about"]["peer"] == "2.0"
    assert found["parts"]["a"]["targets"][0]["is_met"] is False and found["parts"]["a"]["warning"] is None


def test_a_part_alone_leaves_the_file_of_the_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="1"):
        publish("name", missed_part(), is_whole=False)
    assert list(tmp_path.iterdir()) == []


def test_what_is_known_of_other_tables_is_kept(tmp_path):
    save_about(tmp_path / "one.md", "first", seeds=[0])
    save_about(tmp_path / "two.md", "second", seeds=[1], train_seconds=3.0)
    found = json.loads((tmp_path / "about.json").read_text())
    assert found["one"]["command"] == "first" and found["one"]["wall_seconds"] >= 0
    assert found["two"]["seeds"] == [1] and "wall_seconds" not in found["two"]
