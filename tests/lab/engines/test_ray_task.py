"""A run on a machine of a Ray cluster, without Ray: how it hears that it should stop."""

import signal
import sys
import time
from types import SimpleNamespace

import pytest
from tests.lab.engines.samples import specs

from metacal.lab.engines import ray_task
from metacal.lab.engines.attempt import Outcome
from metacal.lab.training import Hardware
from metacal.lab.training.run_folder import RunStore


@pytest.mark.parametrize("before", [0, 2])
def test_a_stop_that_was_heard_outlasts_a_mailbox_that_forgot_it(monkeypatch, tmp_path, before):
    """It was restarted: whether it said so at the start of the task or later."""
    answers = []

    def asked_to_stop():
        answers.append(signal.SIGTERM if len(answers) == before else None)
        return answers[-1]

    def attempt(*_, stop, **__):
        while len(answers) < 8:
            time.sleep(0.02)
        return Outcome("stopped", signal=stop.signal)

    mailbox = SimpleNamespace(asked_to_stop=SimpleNamespace(remote=asked_to_stop))
    exceptions = SimpleNamespace(RayError=RuntimeError)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda answer, timeout: answer, exceptions=exceptions))
    monkeypatch.setattr(ray_task, "attempt", attempt)
    monkeypatch.setattr(ray_task, "ASK_EVERY", 0.01)
    outcome = ray_task.execute_task(specs(1)[0], RunStore(tmp_path), tmp_path, Hardware(), None, mailbox)
    assert outcome.signal == signal.SIGTERM
