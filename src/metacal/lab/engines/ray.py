"""`RayEngine`: every run is a task of a Ray cluster, which retries it when its worker or machine dies."""

import os
import platform
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from metacal.errors import InvalidValueError, needs
from metacal.files import write_text
from metacal.lab.engines.local import Engine, Outcome, Place, RunEvent, RunQueue, attempt, sentence
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

PAUSE = 0.2
STOP_SECONDS = 60.0
"""How long runs may take to save their state when asked to stop; they are ended after that."""
ANSWER_SECONDS = 10.0
ADDRESS = "`address` must be HOST:PORT of a running Ray cluster, or auto on one of its machines"


class RayEngine(Engine):
    """Executes runs on a Ray cluster whose machines share the paths of store and data.

    Args:
        address: ``HOST:PORT`` of the cluster, or ``auto`` for the one that this machine is part of. By default the one
            that is connected, or that ``RAY_ADDRESS`` names, or else a new one on this machine.
        cpus: CPUs of each run, which are also its threads.
        gpus: GPUs of each run: 0, 1, or a part of one that several runs share.
        retries: how often a run whose worker or machine died is tried again, from its last checkpoint.
    """

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0, retries: int = 3) -> None:
        if not cpus > 0:
            raise InvalidValueError(f"`cpus` must be a number > 0, got {cpus}.")
        if not 0 <= gpus <= 1:
            raise InvalidValueError(f"`gpus` must be a number from 0 to 1, as a run here is one process, got {gpus}.")
        if retries < 0:
            raise InvalidValueError(f"`retries` must be an integer >= 0, got {retries}.")
        self.address, self.cpus, self.gpus, self.retries = address, cpus, gpus, retries

    def complete(self, queue: RunQueue, place: Place, stop: StopRequest) -> None:
        """Execute until nothing is left, or until asked to stop.

        Raises:
            Stopped: a signal asked for it; runs have saved their state.
            InvalidValueError: the address does not answer within ten seconds, or no machine has what a run needs.
            MetacalError: Ray is not installed.
        """
        with needs("ray"):
            import ray
            import ray.util.queue
            import ray.util.scheduling_strategies
        data = place.data_dir or os.environ.get("METACAL_DATA")
        hardware = Hardware(accelerator="gpu" if self.gpus else "cpu", threads=max(1, int(self.cpus)))
        with connect(ray, self.address), share(place.store) as (store, mark):
            check_resources(ray, self.cpus, self.gpus)
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=True
            )  # beside this process: events should not be lost with another machine
            kept: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
            events = ray.util.queue.Queue(actor_options=kept)
            there = replace(place, store=store, hardware=hardware, data_dir=Path(data).resolve() if data else None)
            resources: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": self.retries}
            task = ray.remote(**resources)(execute_task)
            running: dict[Any, RunSpec] = {}
            try:
                deadline = None
                while running or (len(queue) and deadline is None):
                    if stop and deadline is None:
                        deadline = time.monotonic() + STOP_SECONDS
                        for ref in running:
                            ray.cancel(ref)
                    while deadline is None and (spec := queue.take()) is not None:
                        named = task.options(name=f"metacal:{spec.title}")
                        running[named.remote(spec, there, mark, events)] = spec
                    done = ray.wait([*running], num_returns=len(running), timeout=PAUSE)[0] if running else []
                    for event in drain(ray, events):
                        queue.emit(event)
                    for ref in done:
                        spec, outcome = running.pop(ref), self._outcome(ray, ref)
                        if not (deadline is not None and outcome.kind == "stopped"):
                            queue.settle(spec, outcome)
                    if deadline is not None and time.monotonic() > deadline:
                        break
                    if not done and not running:
                        time.sleep(PAUSE)
                if deadline is not None:
                    raise Stopped(stop.signal)
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


def drain(ray: ModuleType, events: Any) -> list[RunEvent]:
    """The events since the last time; none while their queue, lost with its machine, is restarted."""
    with suppress(ray.exceptions.RayError):
        told: list[RunEvent] = events.get_nowait_batch(events.qsize())
        return told
    return []


def execute_task(spec: RunSpec, place: Place, mark: Path, events: Any) -> Outcome:
    """Run a spec on a machine of the cluster; when Ray cancels the task, as Ctrl-C would, the run saves and stops."""
    import ray

    if not mark.exists():
        where = f"{mark.parent} on {platform.node()}"
        return Outcome("failed", error=f"The store must be a path that all machines share, got another one: {where}.")

    def tell(event: RunEvent) -> None:
        with suppress(ray.exceptions.RayError):  # the driver is gone: Ray ends this task
            events.put(event)

    with StopRequest().listening() as stop:
        return attempt(spec, place, tell, stop)


@contextmanager
def share(store: RunStore) -> Iterator[tuple[RunStore, Path]]:
    """The store as workers find it, and a file in it that they must see: so they know that they share it."""
    root = store.root.resolve()
    mark = root / f".shared-{uuid4().hex}"
    write_text(mark, "Workers that see this file share the store.\n")
    try:
        yield RunStore(root), mark
    finally:
        mark.unlink(missing_ok=True)


def check_resources(ray: ModuleType, cpus: float, gpus: float) -> None:
    """Raise unless some machine has what a run needs: its task would wait for ever."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(machine.get("CPU", 0) >= cpus and machine.get("GPU", 0) >= gpus for machine in machines):
        return
    found = "; ".join(f"{machine.get('CPU', 0):g} CPUs and {machine.get('GPU', 0):g} GPUs" for machine in machines)
    raise InvalidValueError(
        f"`cpus` and `gpus` must be what some machine of the cluster has ({found}), got {cpus:g} and {gpus:g}."
    )


@contextmanager
def connect(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Be a driver of the cluster; one that was connected before stays so afterwards."""
    if ray.is_initialized():
        yield
        return
    known = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    if known is not None:
        check_answers(known)  # Ray itself would wait for more than a minute, and then exit
    try:
        ray.init(address=known or address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InvalidValueError(f"{ADDRESS}, got {known or address!r}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def check_answers(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Raise unless something listens at an address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidValueError(f"{ADDRESS}, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except (OSError, OverflowError) as error:
        raise InvalidValueError(
            f"{ADDRESS}, got {address!r}, which did not answer within {seconds:g} s: "
            f"{getattr(error, 'strerror', None) or error}. Is `ray start --head` running there, and the port reachable?"
        ) from None
