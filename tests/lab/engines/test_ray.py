"""Runs on a real Ray cluster of several nodes on one machine: workers are killed, a node goes, and all is as on one."""

import os
import signal
import socket
import sys
from types import SimpleNamespace

import psutil
import pytest
from tests.lab.engines.samples import Record, figures, specs

from metacal.errors import InvalidValueError, MetacalError
from metacal.lab.engines import LocalEngine, RayEngine, RunFinished, RunProgressed, RunStarted
from metacal.lab.engines.local import Place
from metacal.lab.engines.ray import execute_task
from metacal.lab.training import Hardware, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

pytest.importorskip("ray")
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A cluster of several nodes on one machine is heavy, and its timing shaky, beside other tests.
ON_A_CLUSTER = pytest.mark.skipif(
    not os.environ.get("METACAL_TEST_RAY"), reason="METACAL_TEST_RAY is not set: tests on a Ray cluster are run alone"
)
# Ray's own: sockets that its clients leave to the garbage collector, and notices of changes to come.
QUIET = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


def worker_of(spec, store):
    """The process, of those that Ray started, that has this run."""
    home = str(store.folder(spec).path)
    for process in psutil.process_iter():
        try:
            if "metacal:" in " ".join(process.cmdline()) and any(f.path.startswith(home) for f in process.open_files()):
                return process
        except psutil.Error:
            continue
    raise AssertionError("nobody has this run")


@QUIET
@ON_A_CLUSTER
@pytest.mark.slow
def test_a_worker_killed_and_a_node_removed(cluster, tmp_path):
    nodes = [cluster.add_node(**NODE), cluster.add_node(**NODE)]
    cluster.wait_for_nodes()
    runs, store = [*specs(2, epochs=150), *specs(2)], RunStore(tmp_path / "ray")
    done = []

    def disturb(event):
        if not isinstance(event, RunProgressed) or event.epoch < 5 or event.epochs < 100:
            return
        if event.spec == runs[0] and "kill" not in done:
            done.append("kill")
            worker_of(runs[0], store).kill()
        elif event.spec == runs[1] and "node" not in done:
            done.append("node")
            raylet = worker_of(runs[1], store).ppid()
            node = next(n for n in nodes if raylet in {p.process.pid for p in n.all_processes["raylet"]})
            cluster.remove_node(node, allow_graceful=False)

    heard = Record(disturb)
    assert RayEngine(cluster.address).execute([*runs, runs[2]], store, emit=heard) == {}
    assert sorted(done) == ["kill", "node"]
    alone = RunStore(tmp_path / "alone")
    LocalEngine(hardware=Hardware(accelerator="cpu", threads=1)).execute(runs, alone)
    assert figures(store, runs) == figures(alone, runs)
    for spec in runs:  # what a process was about to tell when it was killed is not heard: at most, not exactly
        assert heard.starts_from_zero(spec) <= 1
        assert len(heard.of(RunFinished, spec)) == 1
    for spec in runs[2:]:
        assert len(heard.of(RunStarted, spec)) <= 1
        assert len(heard.epochs(spec)) == len(set(heard.epochs(spec)))
    assert not list(store.root.glob(".shared-*"))

    again = Record()
    assert RayEngine("nowhere:1").execute(runs, store, emit=again) == {}  # all is there: no cluster is needed
    assert len(again.events) == 4


@QUIET
@ON_A_CLUSTER
@pytest.mark.slow
def test_a_failure_and_a_stop(cluster, tmp_path):
    cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    store, stop = RunStore(tmp_path / "ray"), StopRequest()
    (bad,), (long,) = specs(1, method="ce", lr=1e30), specs(1, epochs=5000)

    def at_the_fifth_epoch(event):
        if isinstance(event, RunProgressed) and event.epoch == 5:
            stop.signal = signal.SIGINT

    heard = Record(at_the_fifth_epoch)
    with pytest.raises(Stopped):
        RayEngine(cluster.address, cpus=0.5).execute([bad, long], store, emit=heard, stop=stop)
    assert store.state(long) == "unfinished"
    assert (store.folder(long).checkpoints / "last.ckpt").exists()
    assert any("loss became" in getattr(event, "error", "") for event in heard.events)
    with pytest.raises(InvalidValueError, match=r"must fit on a machine of the cluster \(.*\), got 1 and 1"):
        RayEngine(cluster.address, gpus=1).execute([long], store)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cpus": 0}, "`cpus` must be a number > 0, got 0"),
        ({"gpus": 2}, "`gpus` must be a number from 0 to 1, as a run is one process here, got 2"),
        ({"retries": -1}, "`retries` must be an integer >= 0, got -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        RayEngine(**arguments)


@pytest.mark.parametrize("address", ["nonsense", "ray://host:10001", "host:", ":1", "host:port"])
def test_what_is_no_address(address, tmp_path):
    with pytest.raises(InvalidValueError, match="`address` must be HOST:PORT of a running Ray cluster"):
        RayEngine(address).execute(specs(1), RunStore(tmp_path))


def test_an_address_that_refuses(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(
        InvalidValueError, match=rf"got '{address}', which did not answer within 10 s: Connection refused"
    ):
        RayEngine(address).execute(specs(1), RunStore(tmp_path))


def test_without_ray(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MetacalError, match=r"pip install 'metacal\[ray\]'"):
        RayEngine().execute(specs(1), RunStore(tmp_path))


@pytest.fixture
def without_cluster(monkeypatch):
    exceptions = SimpleNamespace(RayError=RuntimeError)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=exceptions))


@pytest.mark.usefixtures("without_cluster")
def test_a_task_saves_and_stops_when_it_is_cancelled(tmp_path):
    (long,), place = specs(1, epochs=5000), Place(RunStore(tmp_path), Hardware(accelerator="cpu", threads=1))
    mark = tmp_path / "mark"
    mark.touch()
    cancel = signal.SIGINT  # as Ray does it
    heard = Record(lambda event: isinstance(event, RunProgressed) and event.epoch == 3 and signal.raise_signal(cancel))
    outcome = execute_task(long, place, mark, SimpleNamespace(put=heard))
    assert outcome.kind == "stopped"
    assert (place.store.folder(long).checkpoints / "last.ckpt").exists()


@pytest.mark.usefixtures("without_cluster")
def test_a_machine_that_sees_another_store(tmp_path):
    place, events = Place(RunStore(tmp_path), Hardware()), SimpleNamespace(put=Record())
    outcome = execute_task(specs(1)[0], place, tmp_path / "mark", events)
    assert outcome.kind == "failed"
    assert outcome.error.startswith(
        f"The store must be a path that all machines share, got another folder at {tmp_path} on"
    )
