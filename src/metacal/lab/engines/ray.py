"""`RayEngine`: every run is a task of a Ray cluster, which retries it if its worker or machine dies."""

import os
import platform
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from metacal.errors import InvalidValueError, needs
from metacal.files import write_text
from metacal.lab.engines.local import Engine, Listener, Outcome, Outcomes, Place, RunEvent, attempt, sentence
from metacal.lab.training import Hardware, RunSpec, StopRequest
from metacal.lab.training.run_folder import RunStore

PAUSE = 0.2
STOP_SECONDS = 60.0
"""Time for runs to save their state when asked to stop, before they are killed."""
ANSWER_SECONDS = 10.0
ADDRESS = "`address` must be HOST:PORT of a running Ray cluster, or auto on one of its machines"


class RayEngine(Engine):
    """Executes runs on a Ray cluster whose machines share the paths of store and data.

    Args:
        address: ``HOST:PORT`` of the cluster, or ``auto`` for the one that this machine belongs to. By default the
            connected one, else that in ``RAY_ADDRESS``, else a new one on this machine.
        cpus: CPUs per run, and its number of threads.
        gpus: GPUs per run: 0, 1, or a fraction to share one.
        retries: how often to retry a run, from its last checkpoint, if its worker or machine dies.
    """

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0, retries: int = 3) -> None:
        if not cpus > 0:
            raise InvalidValueError(f"`cpus` must be a number > 0, got {cpus}.")
        if not 0 <= gpus <= 1:
            raise InvalidValueError(f"`gpus` must be a number from 0 to 1, as a run is one process here, got {gpus}.")
        if retries < 0:
            raise InvalidValueError(f"`retries` must be an integer >= 0, got {retries}.")
        self.address, self.cpus, self.gpus, self.retries = address, cpus, gpus, retries
        self.hardware = Hardware(accelerator="gpu" if gpus else "cpu", threads=max(1, int(cpus)))

    def outcomes(self, waiting: deque[RunSpec], place: Place, emit: Listener, stop: StopRequest) -> Outcomes:
        """Submit every run as a task; the cluster schedules them.

        Raises:
            InvalidValueError: the address does not answer within ten seconds, or no machine has enough resources.
            MetacalError: Ray is not installed.
        """
        with needs("ray"):
            import ray
            from ray.util.queue import Queue
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        data = place.data_dir or os.environ.get("METACAL_DATA")
        root = place.store.root.resolve()
        there = Place(RunStore(root), place.hardware, Path(data).resolve() if data else None)
        with connect(ray, self.address), marked(root) as mark:
            check_resources(ray, self.cpus, self.gpus)
            # The queue is on this machine, so that no events are lost with another one.
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
            events = Queue(actor_options={"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here})
            resources: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
            task = ray.remote(**resources)(execute_task)
            running: dict[Any, RunSpec] = {}
            deadline = float("inf")
            try:
                while (running or (waiting and not stop)) and time.monotonic() < deadline:
                    while waiting and not stop:
                        spec = waiting.popleft()
                        running[task.options(name=f"metacal:{spec.title}").remote(spec, there, mark, events)] = spec
                    if stop and deadline == float("inf"):
                        deadline = time.monotonic() + STOP_SECONDS
                        for ref in running:
                            ray.cancel(ref)
                    done = ray.wait([*running], num_returns=len(running), timeout=PAUSE)[0] if running else []
                    with suppress(ray.exceptions.RayError):  # the queue's actor is being restarted
                        for event in events.get_nowait_batch(events.qsize()):
                            emit(event)
                    for ref in done:
                        yield running.pop(ref), self._outcome(ray, ref)
            finally:
                for ref in running:
                    with suppress(ray.exceptions.RayError):
                        ray.cancel(ref, force=True)
                events.shutdown(force=True)

    def _outcome(self, ray: ModuleType, ref: Any) -> Outcome:
        errors = ray.exceptions
        try:
            outcome: Outcome = ray.get(ref)
        except errors.TaskCancelledError:
            return Outcome("stopped")
        except errors.RayError as error:
            first_line = sentence(error).strip().splitlines()[0]
            times = f"{self.retries + 1} times" if self.retries else "once"
            died = isinstance(error, (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError))
            return Outcome("failed", error=f"Its worker died {times}: {first_line}" if died else first_line)
        return outcome


def execute_task(spec: RunSpec, place: Place, mark: Path, events: Any) -> Outcome:
    """Run a spec on a machine of the cluster; a cancelled task saves its state and stops."""
    import ray

    if not mark.exists():
        where = f"another folder at {mark.parent} on {platform.node()}"
        return Outcome("failed", error=f"The store must be a path that all machines share, got {where}.")

    def tell(event: RunEvent) -> None:
        with suppress(ray.exceptions.RayError):  # the driver is gone, and Ray ends this task
            events.put(event)

    with StopRequest().listening() as stop:
        return attempt(spec, place, tell, stop)


@contextmanager
def marked(root: Path) -> Iterator[Path]:
    """Create a file in the store by which workers check that they share it."""
    mark = root / f".shared-{uuid4().hex}"
    write_text(mark, "Workers that see this file share the store.\n")
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def check_resources(ray: ModuleType, cpus: float, gpus: float) -> None:
    """Raise unless some machine has the resources of a run: its task would wait forever."""
    machines = [
        (node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]
    ]
    if not any(has_cpus >= cpus and has_gpus >= gpus for has_cpus, has_gpus in machines):
        found = "; ".join(f"{has_cpus:g} CPUs and {has_gpus:g} GPUs" for has_cpus, has_gpus in machines)
        raise InvalidValueError(
            f"`cpus` and `gpus` must fit on a machine of the cluster ({found}), got {cpus:g} and {gpus:g}."
        )


@contextmanager
def connect(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Connect to the cluster as a driver; an existing connection is reused."""
    if ray.is_initialized():
        yield
        return
    known = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    if known is not None:
        check_answers(known)  # Ray itself waits for more than a minute, and then exits
    try:
        ray.init(address=known or address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InvalidValueError(f"{ADDRESS}, got {known or address!r}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Raise unless something listens at an address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidValueError(f"{ADDRESS}, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InvalidValueError(
            f"{ADDRESS}, got {address!r}, which did not answer within {ANSWER_SECONDS:g} s: "
            f"{getattr(error, 'strerror', None) or error}. Is `ray start --head` running there, and the port reachable?"
        ) from None
