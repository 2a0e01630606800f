"""Requests to stop."""

import signal

import pytest

from metacal.lab.training import Stopped, StopRequest


def test_a_request_is_raised_with_its_signal():
    stop = StopRequest()
    stop.raise_if_asked()
    stop.signal = signal.SIGINT
    with pytest.raises(Stopped, match="stopped by SIGINT; everything is saved") as stopped:
        stop.raise_if_asked()
    assert stopped.value.signal == signal.SIGINT


def test_what_another_process_was_asked_by_counts_as_sigterm():
    assert Stopped(None).signal == signal.SIGTERM
