"""Runs at a URL: made here, kept there, gone on with elsewhere, and held by one process at a time."""

import contextlib
import json
import signal
import threading
import time

import fsspec
import pytest
from tests.lab.engines.samples import Record, figures, specs

from metacal.errors import InUseError, InvalidValueError, StorageError
from metacal.lab.engines import LocalEngine, RunFailed, RunFinished, RunProgressed, RunStarted
from metacal.lab.engines.estimate import estimate_seconds
from metacal.lab.engines.remote_store import RemoteStore, rank
from metacal.lab.training import Hardware, Stopped, StopRequest
from metacal.lab.training.run_store import RunStore

ENGINE = LocalEngine(hardware=Hardware(accelerator="cpu", threads=1))


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    if request.param == "file":
        return f"file://{tmp_path}/there"
    return f"memory://{tmp_path.name}/there"


def store_at(place, scratch, **options):
    return RemoteStore(place, scratch, **{"lease_seconds": 2.0, "push_seconds": 0.0, **options})


def test_what_is_made_here_is_read_elsewhere(place, tmp_path):
    runs, alone = specs(2), RunStore(tmp_path / "alone")
    ENGINE.execute(runs, alone)
    here, elsewhere = store_at(place, tmp_path / "here"), store_at(place, tmp_path / "elsewhere")
    assert elsewhere.state(runs[0]) == "missing"
    assert ENGINE.execute(runs, here) == {}
    assert elsewhere.state(runs[0]) == "complete" and not elsewhere.folder(runs[0]).exists
    heard = Record()
    assert ENGINE.execute(runs, elsewhere, emit=heard) == {}
    assert [type(event) for event in heard.events] == [RunFinished, RunFinished]
    assert figures(elsewhere, runs) == figures(here, runs) == figures(alone, runs)
    system, root = fsspec.core.url_to_fs(place)
    assert not [name for name in system.find(root) if name.endswith(("lease.json", "run.lock"))]


def test_all_runs_of_a_store_are_those_that_are_there(place, tmp_path):
    complete, begun, old = specs(3)
    here, elsewhere = store_at(place, tmp_path / "here"), store_at(place, tmp_path / "elsewhere")
    for spec in (complete, begun, old):
        here.folder(spec).write_spec(spec, {})
    here.folder(complete).write_scores({"spec": complete.hash, "test": {}, "train_seconds": 7.0})
    stored = here.folder(old).path / "spec.json"
    stored.write_text(stored.read_text().replace('"schema": 2', '"schema": 1'))
    for spec in (complete, begun, old):
        here.push(spec)
    assert [folder.read_spec() for folder in elsewhere.complete()] == [complete]
    assert elsewhere.of_other_versions() == [here.folder(old).path.name]
    assert estimate_seconds([begun], elsewhere) == 7.0


def test_a_run_goes_on_elsewhere(place, tmp_path):
    runs, stop = specs(1, epochs=30), StopRequest()

    def at_the_tenth_epoch(event):
        if isinstance(event, RunProgressed) and event.epoch == 10:
            stop.signal = signal.SIGTERM

    with pytest.raises(Stopped):
        ENGINE.execute(runs, store_at(place, tmp_path / "here"), emit=Record(at_the_tenth_epoch), stop=stop)
    elsewhere, heard = store_at(place, tmp_path / "elsewhere"), Record()
    assert elsewhere.state(runs[0]) == "begun"
    assert ENGINE.execute(runs, elsewhere, emit=heard) == {}
    assert heard.epochs(runs[0]) == list(range(11, 31))
    alone = RunStore(tmp_path / "alone")
    ENGINE.execute(runs, alone)
    assert figures(elsewhere, runs) == figures(alone, runs)


class Watched(RemoteStore):
    """Keeps what is copied after each epoch."""

    def push(self, spec):
        home = self.folder(spec).path
        files = {file.relative_to(home): file.read_bytes() for file in home.rglob("*") if file.is_file()}
        self.__dict__.setdefault("copies", {})[len(self.folder(spec).read_history())] = files
        super().push(spec)


def test_every_copy_that_is_cut_short_can_be_gone_on_from(tmp_path):
    """A process that dies while it copies leaves some files new and the others old."""
    runs, alone = specs(1, epochs=6), RunStore(tmp_path / "alone")
    ENGINE.execute(runs, alone)
    here = Watched(f"file://{tmp_path}/there", tmp_path / "here", push_seconds=0.0, lease_seconds=2.0)
    assert ENGINE.execute(runs, here) == {}
    old, new = here.copies[2], here.copies[4]
    changed = sorted((file for file in new if old.get(file) != new[file]), key=rank)
    assert [file.name for file in changed[-2:]] == ["previous.ckpt", "last.ckpt"]
    for kept in range(len(changed) + 1):
        there, store = tmp_path / f"cut{kept}", store_at(f"file://{tmp_path}/cut{kept}", tmp_path / f"scratch{kept}")
        for file, data in {**old, **{file: new[file] for file in changed[:kept]}}.items():
            target = there / here.folder(runs[0]).path.name / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        heard = Record()
        assert ENGINE.execute(runs, store, emit=heard) == {}
        assert heard.epochs(runs[0])[0] >= 3
        assert figures(store, runs) == figures(alone, runs)


def test_a_lease_is_for_one_and_ends(place, tmp_path):
    (spec,) = specs(1)
    one, other = store_at(place, tmp_path / "one"), store_at(place, tmp_path / "other")
    with one.lease(spec):
        wait_for_renewal(one, spec)
        patient = store_at(place, tmp_path / "other", lease_seconds=60.0)
        with pytest.raises(InUseError, match="is in use by another process"), patient.lease(spec):
            pass
    with other.lease(spec):
        pass
    system, path = one._place(spec)
    system.pipe_file(f"{path}/lease.json", b'{"owner": "dead", "time": %d}' % (time.time() - 60))
    with other.lease(spec):  # of a process that died
        pass


def write_lease(store, spec, owner):
    system, path = store._place(spec)
    system.pipe_file(f"{path}/lease.json", json.dumps({"owner": owner, "time": time.time()}).encode())


def read_lease(store, spec, key):
    system, path = store._place(spec)
    while True:
        with contextlib.suppress(ValueError):  # half written
            return json.loads(system.cat_file(f"{path}/lease.json"))[key]


def wait_for_renewal(store, spec):
    before = read_lease(store, spec, "time")
    while read_lease(store, spec, "time") == before:
        time.sleep(0.02)


def wait_for_keeper():
    """Until the thread that renews a lease has seen that it is lost."""
    for thread in threading.enumerate():
        if thread.name == "metacal-lease":
            thread.join()


def test_a_lease_that_another_process_has_taken_over_is_left_to_it(place, tmp_path):
    """As after an outage that was longer than a lease is good for."""
    (spec,) = specs(1)
    store = store_at(place, tmp_path / "here")
    store.folder(spec).write_spec(spec, {})
    with store.lease(spec):
        store.push(spec)
        write_lease(store, spec, "another")
        with pytest.raises(InUseError, match="was taken over by another process"):
            store.push(spec)  # at once, not only when it is next renewed
        wait_for_keeper()
        assert read_lease(store, spec, "owner") == "another"  # not renewed over
    assert read_lease(store, spec, "owner") == "another"  # nor given back
    system, path = store._place(spec)
    system.rm_file(f"{path}/lease.json")
    with store.lease(spec):
        store.push(spec)
        system.rm_file(f"{path}/lease.json")  # by one that took it and is done
        with pytest.raises(InUseError, match="was taken over by another process"):
            store.push(spec)
        wait_for_keeper()
        assert not system.exists(f"{path}/lease.json")
    store.push(spec)  # without a lease, as before


def test_a_lease_outlives_errors_of_any_kind(place, tmp_path, monkeypatch):
    (spec,) = specs(1)
    store = store_at(place, tmp_path / "one")
    kind = type(store._place(spec)[0])

    failed = threading.Event()

    def fail(*_, **__):
        failed.set()
        raise RuntimeError("as a client library of a store may raise")

    with store.lease(spec):
        with monkeypatch.context() as outage:
            outage.setattr(kind, "pipe_file", fail)
            failed.wait()
        wait_for_renewal(store, spec)


def test_a_run_that_was_taken_over_is_waited_for(place, tmp_path):
    runs, alone, heard = specs(1, epochs=6), RunStore(tmp_path / "alone"), Record()
    ENGINE.execute(runs, alone)
    store = store_at(place, tmp_path / "here")

    def after_the_second_epoch(event):
        if isinstance(event, RunProgressed) and event.epoch == 2 and event.figures:
            write_lease(store, runs[0], "another")  # which dies at once

    heard.act = after_the_second_epoch
    assert ENGINE.execute(runs, store, emit=heard) == {}
    assert len(heard.of(RunStarted)) == 2 and figures(store, runs) == figures(alone, runs)
    assert store_at(place, tmp_path / "elsewhere").state(runs[0]) == "complete"


def test_a_held_run_is_waited_for(place, tmp_path):
    runs, heard = specs(2), Record()
    other, store = store_at(place, tmp_path / "other"), store_at(place, tmp_path / "one", lease_seconds=60.0)
    held = other.lease(runs[0])
    held.__enter__()
    heard.act = lambda event: (
        isinstance(event, RunFinished) and event.spec == runs[1] and held.__exit__(None, None, None)
    )
    assert ENGINE.execute(runs, store, emit=heard) == {}
    assert [event.spec for event in heard.of(RunFinished)] == [runs[1], runs[0]]


class CutOff(RemoteStore):
    """Cannot be reached when the first run is complete there."""

    def pull(self, spec):
        if spec.seed == 0 and self.state(spec) == "complete":
            raise StorageError(f"{self.url} could not be reached: timed out.")
        super().pull(spec)


def test_a_run_that_cannot_be_copied_here_has_failed_and_the_others_go_on(place, tmp_path):
    runs, heard = specs(2), Record()
    store = CutOff(place, tmp_path / "here", lease_seconds=2.0, push_seconds=0.0)
    failures = ENGINE.execute(runs, store, emit=heard)
    assert failures == {
        runs[0].hash: "It is complete at the store, but could not be copied here: "
        f"{place} could not be reached: timed out. The same command goes on."
    }
    assert [event.spec for event in heard.of(RunFailed)] == [runs[0]]
    assert [event.spec for event in heard.of(RunFinished)] == [runs[1]]
    assert ENGINE.execute(runs, store_at(place, tmp_path / "here")) == {}


def test_a_url_that_cannot_be_opened(tmp_path):
    with pytest.raises(InvalidValueError, match="must be a path or a URL that fsspec can open, got 'nosuch://x'"):
        RemoteStore("nosuch://x")
    (tmp_path / "file").write_text("not a folder")
    failures = ENGINE.execute(specs(1), store_at(f"file://{tmp_path}/file/runs", tmp_path / "scratch"))
    assert "could not be reached" in next(iter(failures.values()))
    assert issubclass(InUseError, StorageError)
