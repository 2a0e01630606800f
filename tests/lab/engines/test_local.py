"""Runs on this machine: the same in one process and in two, each trained once, failures and deaths kept apart."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import psutil
import pytest
from tests.lab.engines.samples import SMALL, Record, figures, specs

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.engines import LocalEngine, RunFailed, RunFinished, RunProgressed, RunStarted
from metacal.lab.engines.local import visible_gpus
from metacal.lab.training import Hardware, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

ONE_THREAD = Hardware(accelerator="cpu", threads=1)


def engine(jobs=1):
    return LocalEngine(jobs, ONE_THREAD)


def workers():
    """Processes that are forked from the one that is kept for that."""
    return [worker for child in psutil.Process().children() for worker in child.children()]


def holder_of(spec, store):
    """The worker that has this run."""
    home = str(store.folder(spec).path)
    return next(worker for worker in workers() if any(file.path.startswith(home) for file in worker.open_files()))


def test_two_processes_give_what_one_gives(tmp_path):
    runs, alone, shared = specs(4), RunStore(tmp_path / "alone"), RunStore(tmp_path / "shared")
    (bad,) = specs(1, method="ce", lr=1e30, epochs=7)
    heard = Record()
    assert engine(1).execute(runs, alone) == {}
    failures = engine(2).execute([bad, *runs, runs[0]], shared, emit=heard)
    assert list(failures) == [bad.hash]
    assert "loss became" in failures[bad.hash]
    assert figures(alone, runs) == figures(shared, runs)
    for spec in runs:
        assert len(heard.of(RunStarted, spec)) == len(heard.of(RunFinished, spec)) == 1
        assert heard.epochs(spec) == [1, 2, 3]
        assert heard.of(RunFinished, spec)[0].scores["spec"] == spec.hash
        assert heard.of(RunProgressed, spec)[-1].figures["val_ece"] == shared.folder(spec).read_history()[-1]["val_ece"]
    assert not workers()


def test_a_complete_run_is_read(tmp_path):
    runs, store, heard = specs(2), RunStore(tmp_path), Record()
    engine().execute(runs, store)
    before = [store.folder(spec).path.joinpath("scores.json").stat().st_mtime_ns for spec in runs]
    assert engine().execute(runs, store, emit=heard) == engine(2).execute(runs, store) == {}
    assert [type(event) for event in heard.events] == [RunFinished, RunFinished]
    assert [store.folder(spec).path.joinpath("scores.json").stat().st_mtime_ns for spec in runs] == before


def test_a_failing_run_takes_no_other_with_it(tmp_path):
    store, heard = RunStore(tmp_path), Record()
    good, bad = specs(2), specs(1, method="ce", lr=1e30, seed=7)
    failures = engine().execute([*bad, *good], store, emit=heard)
    assert list(failures) == [bad[0].hash]
    assert "loss became" in failures[bad[0].hash]
    assert [event.error for event in heard.of(RunFailed)] == list(failures.values())
    assert [store.state(spec) for spec in good] == ["complete", "complete"]


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    failures = engine().execute(specs(1), RunStore(tmp_path / "file"))
    assert "could not be written" in next(iter(failures.values()))


def test_a_damaged_run_is_named(tmp_path):
    runs, store = specs(1), RunStore(tmp_path)
    engine().execute(runs, store)
    (store.folder(runs[0]).path / "scores.json").write_text("{")
    assert "scores.json is damaged" in engine().execute(runs, store)[runs[0].hash]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stop_saves_and_a_second_call_goes_on(jobs, tmp_path):
    runs, store, stop = specs(3, epochs=60), RunStore(tmp_path / "cut"), StopRequest()

    def at_the_fifth_epoch(event):
        if isinstance(event, RunProgressed) and event.spec == runs[0] and event.epoch == 5:
            stop.signal = signal.SIGINT

    with pytest.raises(Stopped) as stopped:
        engine(jobs).execute(runs, store, emit=Record(at_the_fifth_epoch), stop=stop)
    assert stopped.value.signal == signal.SIGINT
    assert not workers()
    assert store.state(runs[0]) == "unfinished"
    assert store.state(runs[2]) == "missing"
    heard = Record()
    assert engine().execute(runs, store, emit=heard) == {}
    assert heard.epochs(runs[0])[0] > 5
    assert heard.starts_from_zero(runs[0]) == 0
    whole = RunStore(tmp_path / "whole")
    engine().execute(runs, whole)
    assert figures(store, runs) == figures(whole, runs)


@pytest.mark.slow
def test_ctrl_c_stops_the_workers_of_a_command(tmp_path):
    """SIGINT goes to the whole group, as from a terminal."""
    path = tmp_path / "script.py"
    path.write_text(script(tmp_path, count=2, epochs=5000, jobs=2, emit="lambda event: print('told', flush=True)"))
    process = subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    for _ in range(20):
        assert process.stdout.readline() == "told\n"
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert "Stopped: stopped by SIGINT" in said
    assert "KeyboardInterrupt" not in said
    wait_until_nobody_is_left(process.pid)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_another_process_holds_is_left_to_it(jobs, tmp_path):
    runs, store, heard = specs(2), RunStore(tmp_path), Record()
    holder = (
        "import sys, time\n"
        "from metacal.lab.training import RunFolder\n"
        f"with RunFolder({str(store.folder(runs[0]).path)!r}).lock():\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"

        def let_go(event):
            if isinstance(event, RunFinished):
                assert event.spec == runs[1]  # the free one is not kept waiting
                assert store.state(runs[0]) == "missing"
                heard.act = None
                threading.Timer(0.7, other.stdin.close).start()

        heard.act = let_go
        assert engine(jobs).execute(runs, store, emit=heard) == {}
    assert [event.spec for event in heard.of(RunFinished)] == [runs[1], runs[0]]
    assert [heard.starts_from_zero(spec) for spec in runs] == [1, 1]


@pytest.mark.slow
def test_two_engines_on_one_store_train_each_run_once(tmp_path):
    runs, store = specs(6, epochs=20), RunStore(tmp_path / "runs")
    path = tmp_path / "other.py"
    # The other one waits after its first epoch, so that there are runs left to train here.
    tell = "getattr(event, 'figures', None) and (print(event.spec.seed, event.epoch, flush=True), sys.stdin.read())"
    path.write_text(script(store.root, count=6, epochs=20, jobs=1, emit=f"lambda event: {tell}"))
    with subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        first = other.stdout.readline()
        heard = Record(lambda event: other.stdin.close() if getattr(event, "figures", None) else None)
        assert engine().execute(runs, store, emit=heard) == {}
        lines = [first, *other.stdout]
    assert other.returncode == 0
    by_other = [tuple(map(int, line.split())) for line in lines]
    by_us = [(spec.seed, epoch) for spec in runs for epoch in heard.epochs(spec)]
    assert by_us
    assert sorted(by_us + by_other) == [(seed, epoch) for seed in range(6) for epoch in range(1, 21)]


@pytest.mark.slow
def test_killed_workers_are_replaced_and_their_runs_go_on(tmp_path):
    (cut,), others, (doomed,) = specs(1, epochs=200), specs(3), specs(1, epochs=3000)
    store = RunStore(tmp_path / "killed")

    def kill(event):
        if isinstance(event, RunProgressed) and event.spec == cut and event.epoch == 5 and not kills:
            kills.append(holder_of(cut, store).kill())
        if isinstance(event, RunProgressed) and event.spec == doomed and not event.figures:
            holder_of(doomed, store).kill()

    kills = []
    heard = Record(kill)
    failures = engine(2).execute([doomed, cut, *others], store, emit=heard)
    assert failures == {doomed.hash: "Its process died 2 times: killed, or out of memory?"}
    assert len(kills) == 1
    assert len(heard.of(RunStarted, cut)) == 2
    assert heard.starts_from_zero(cut) == 1
    whole = RunStore(tmp_path / "whole")
    engine().execute([cut, *others], whole)
    assert figures(store, [cut, *others]) == figures(whole, [cut, *others])


@pytest.mark.slow
def test_workers_leave_when_their_parent_is_killed(tmp_path):
    path = tmp_path / "script.py"
    die = "lambda event: getattr(event, 'epoch', 0) == 3 and os.kill(os.getpid(), signal.SIGKILL)"
    path.write_text(script(tmp_path, count=2, epochs=5000, jobs=2, emit=die))
    process = subprocess.Popen([sys.executable, path], start_new_session=True)
    assert process.wait() == -signal.SIGKILL
    wait_until_nobody_is_left(process.pid)


def script(root, *, count, epochs, jobs, emit):
    return f"""
import os, signal, sys
from pathlib import Path
from metacal.lab.engines import LocalEngine
from metacal.lab.training import Hardware, build_spec
from metacal.lab.training.run_folder import RunStore

if __name__ == "__main__":
    specs = [build_spec({{**{SMALL!r}, "epochs": {epochs}, "seed": seed}}) for seed in range({count})]
    LocalEngine({jobs}, Hardware(threads=1)).execute(specs, RunStore({str(root)!r}), emit={emit})
"""


def wait_until_nobody_is_left(group):
    """One that stays holds the test up until it is ended for that."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("jobs", "error"),
    [(0, InvalidValueError), (-1, InvalidValueError)] + [(jobs, InvalidTypeError) for jobs in (1.5, True, "2")],
)
def test_jobs_must_be_a_count(jobs, error):
    with pytest.raises(error, match="`jobs` must be an integer >= 1, got"):
        LocalEngine(jobs)
    assert LocalEngine(np.int64(2)).jobs == 2


def test_gpus_of_workers(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(Hardware()) == ["0", "1"]
    assert visible_gpus(Hardware(accelerator="cpu")) == visible_gpus(Hardware(devices=2)) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-7")
    assert visible_gpus(Hardware()) == ["5", "GPU-7"]
