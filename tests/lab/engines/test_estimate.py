"""How long runs take, before they are begun."""

import pytest

from metacal.lab.engines.estimate import LEARNING, estimate_seconds
from metacal.lab.training import build_spec
from metacal.lab.training.run_folder import RunStore


def test_a_meta_step_each_iteration_costs_and_one_now_and_then_does_not(tmp_path):
    plain, paper, ours = (build_spec({"dataset": "cifar10", "method": method}) for method in ("ce", "mc", "meta"))
    seconds = [estimate_seconds([spec], RunStore(tmp_path)) for spec in (plain, paper, ours)]
    assert seconds == pytest.approx([seconds[0], LEARNING * seconds[0], seconds[0]])


def test_runs_that_step_otherwise_are_not_alike(tmp_path):
    store, small = RunStore(tmp_path), {"dataset": "digits", "epochs": 2}
    done = build_spec({**small, "method": "mc", "outer": "paper"})
    folder = store.folder(done)
    folder.write_spec(done, {})
    folder.write_scores({"spec": done.hash, "test": {}, "train_seconds": 700.0})
    assert estimate_seconds([done.model_copy(update={"seed": 1})], store) == 700.0
    assert estimate_seconds([build_spec({**small, "method": "meta"})], store) < 70.0


def test_runs_that_were_only_begun_or_are_of_another_version_do_not_count(tmp_path):
    complete, begun, old = (build_spec({"dataset": "digits", "epochs": 2, "seed": seed}) for seed in range(3))
    store = RunStore(tmp_path)
    for spec in (complete, begun, old):
        store.folder(spec).write_spec(spec, {})
    store.folder(complete).write_scores({"spec": complete.hash, "test": {}, "train_seconds": 7.0})
    stored = store.folder(old).path / "spec.json"
    stored.write_text(stored.read_text().replace('"schema": 2', '"schema": 1'))
    assert [folder.read_spec() for folder in store.complete()] == [complete]
    assert store.of_other_versions() == [store.folder(old).path.name]
    assert estimate_seconds([begun], store) == 7.0
