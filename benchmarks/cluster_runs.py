"""The 210 runs of the main tables on a Ray cluster whose nodes are processes of this machine, and are killed.

The plan is that of ``metacal run main-ece --scale full``. Each of its runs is replaced by the shortest real one: its
method and seed on the digits, with a network of another width for each row, so that there are 210 different runs. They
train, save checkpoints and resume as any other. Nodes are killed while a run of theirs is in the middle of its
training, and replaced; half-way the command is stopped, and started again.
"""

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.report import Part, Row, Target
from metacal.lab.engines import LocalEngine, RayEngine, RunEvent, RunFinished, RunProgressed, RunStarted
from metacal.lab.paper import TABLES
from metacal.lab.paper.exhibits import scale_settings
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest, build_spec
from metacal.lab.training.run_folder import RunStore

NODES = 3
CPUS = 1
QUIET = {
    "RAY_worker_niceness": "0",  # workers are as nice as this command, no nicer
    "RAY_idle_worker_killing_time_threshold_ms": "600000",  # on a busy machine a new worker takes a minute to start
    "RAY_worker_register_timeout_seconds": "600",
}
NODE = {"num_cpus": CPUS, "object_store_memory": 80 * 2**20}
EPOCHS = 8
KILL_AT = (20, 60, 140, 180)
"""Runs that are done when a node is killed."""
STOP_AT = 100
COMPARED = 21
"""Runs that are trained again on one machine: one in ten."""


def stand_ins() -> list[RunSpec]:
    """The shortest real version of every run of the main tables, in the order of the table."""
    table = TABLES["main-ece"]
    specs = []
    for number, row in enumerate(table.rows):
        for column in table.columns:
            for seed in table.seeds:
                settings = {**row.settings, **(column.settings or {}), "seed": seed}
                small = {"model_options": {"hidden": [16 + number]}, "epochs": EPOCHS}
                specs.append(build_spec({**scale_settings(settings, "smoke"), **small}))
    return specs


class Killer:
    """A listener that notes where runs start, and kills a node (or stops the command) at certain counts of runs."""

    def __init__(self, cluster: Any, nodes: list[Any], store: RunStore) -> None:
        self.cluster, self.nodes, self.store = cluster, nodes, store
        self.stop = StopRequest()
        self.finished: set[str] = set()
        self.starts: Counter[str] = Counter()
        self.resumed: set[str] = set()
        self.places: Counter[int] = Counter()
        self.kills, self.to_kill, self.to_stop = 0, list(KILL_AT), [STOP_AT]

    def __call__(self, event: RunEvent) -> None:
        """Take note, and act."""
        if isinstance(event, RunFinished):
            self.finished.add(event.spec.hash)
        elif isinstance(event, RunStarted):
            self.starts[event.spec.hash] += 1
            if (raylet := self.raylet_of(event.spec)) is not None:
                self.places[raylet] += 1
        elif isinstance(event, RunProgressed):
            if not event.figures and event.epoch:
                self.resumed.add(event.spec.hash)
            done = len(self.finished)
            if self.to_stop and done >= self.to_stop[0]:
                self.to_stop.pop()
                self.stop.signal = signal.SIGTERM
            elif self.to_kill and done >= self.to_kill[0] and 1 <= event.epoch < EPOCHS - 3:
                self.kill_node_of(event.spec)

    def raylet_of(self, spec: RunSpec) -> int | None:
        """The process of the node that has a run; None if it is over already."""
        home = str(self.store.folder(spec).path)
        for process in psutil.process_iter():
            try:
                if "metacal:" in " ".join(process.cmdline()) and any(
                    file.path.startswith(home) for file in process.open_files()
                ):
                    return int(process.ppid())
            except psutil.Error:
                continue
        return None

    def kill_node_of(self, spec: RunSpec) -> None:
        """Kill the node that has a run, with all of its workers, and start another one."""
        raylet = self.raylet_of(spec)
        node = next((n for n in self.nodes if raylet in {p.process.pid for p in n.all_processes["raylet"]}), None)
        if node is None:
            return
        self.to_kill.pop(0)
        self.kills += 1
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.remove(node)
        self.nodes.append(self.cluster.add_node(**NODE))


def run_on_nodes() -> Part:
    """Execute all of it, and say what came out."""
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster

    specs, planned = stand_ins(), TABLES["main-ece"].specs("full")
    head = {"num_cpus": 0, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(f"{folder}/cluster")
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            nodes = [cluster.add_node(**NODE) for _ in range(NODES)]
            cluster.wait_for_nodes()
            killer = Killer(cluster, nodes, store)
            begun, commands, failures = time.perf_counter(), 0, {"": "not run"}
            while failures and commands < 4:  # a run that lost its worker too often is begun again by the next command
                commands += 1
                try:
                    failures = RayEngine(cluster.address).execute(specs, store, emit=killer, stop=killer.stop)
                except Stopped:
                    killer.stop = StopRequest()
            seconds = time.perf_counter() - begun
        finally:
            cluster.shutdown()
        alone = RunStore(f"{folder}/alone")
        some = specs[:: len(specs) // COMPARED]
        LocalEngine(hardware=Hardware(accelerator="cpu", threads=1)).execute(some, alone)
        equal = sum(figures(store, spec) == figures(alone, spec) for spec in some)
        complete = sum(store.state(spec) == "complete" for spec in specs)
    row: Row = {
        "runs planned": len(planned),
        "different runs": len({spec.hash for spec in specs}),
        "nodes": NODES,
        "CPUs a node": CPUS,
        "nodes killed": killer.kills,
        "commands": commands,
        "complete": complete,
        "failed": len(failures),
        "started more than once": sum(count > 1 for count in killer.starts.values()),
        "resumed from a checkpoint": len(killer.resumed),
        "nodes that ran something": len(killer.places),
        "compared with one machine": len(some),
        "equal to the bit": equal,
        "seconds": seconds,
    }
    return Part(
        f"{len(planned)} runs of the main tables on {NODES} Ray nodes of this machine, with killed nodes",
        [row],
        targets(row),
        [
            "A run's training is replaced by its shortest real version: its method and seed on the digits, "
            f"{EPOCHS} epochs of 64 samples, with another width for each row of the table.",
            f"A node is killed in the middle of a run, and replaced, after {', '.join(map(str, KILL_AT))} runs; the "
            f"command is stopped after {STOP_AT} and started again. Events of a killed worker may be lost: counts of "
            "starts and resumptions are at least these.",
        ],
    )


def targets(row: Row) -> Sequence[Target]:
    """What has to come out."""
    wanted = float(row["runs planned"] or 0)
    return [
        Target("runs complete", float(row["complete"] or 0), wanted, at_least=True),
        Target("different runs", float(row["different runs"] or 0), wanted, at_least=True),
        Target("nodes killed", float(row["nodes killed"] or 0), float(len(KILL_AT)), at_least=True),
        Target("runs resumed from a checkpoint", float(row["resumed from a checkpoint"] or 0), 1.0, at_least=True),
        Target("equal to one machine", float(row["equal to the bit"] or 0), float(COMPARED), at_least=True),
    ]


def figures(store: RunStore, spec: RunSpec) -> tuple[Any, Any]:
    """Scores and history of a run, without the time they took."""
    scores, history = store.folder(spec).read_scores(), store.folder(spec).read_history()
    scores.pop("train_seconds")
    return scores, [{key: row[key] for key in row if "seconds" not in key} for row in history]
