"""How long runs take, before they are begun."""

import pytest

from metacal.lab.engines.estimate import LEARNING, estimate_seconds
from metacal.lab.training import build_spec
from metacal.lab.training.run_store import RunStore


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
