"""`RayEngine`: every run is a task of a Ray cluster, which retries it when its worker or machine dies."""

import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from metacal.errors import InvalidValueError, needs
from metacal.files import write_text
from metacal.lab.engines.attempt import Listener, Outcome, Place, RunEvent, RunQueue, attempt, sentence, silence
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

PAUSE = 0.2
MAIL_SECONDS = 30.0
"""How long the mailbox may take to answer before a run's end is passed on without its last epochs."""
STOP_SECONDS = 60.0
"""How long runs may take to save their state when asked to stop; they are cancelled after that."""
WATCH_SECONDS = 1.0
"""From one time that a run sees whether it should stop to the next."""
ANSWER_SECONDS = 10.0
PROBE = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
ADDRESS = "`address` must be HOST:PORT of a running Ray cluster, or auto on one of its machines"


class RayEngine:
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

    def execute(
        self,
        specs: Sequence[RunSpec],
        store: RunStore,
        *,
        data_dir: Path | None = None,
        emit: Listener = silence,
        stop: StopRequest | None = None,
    ) -> dict[str, str]:
        """Complete every run that can be completed; see `LocalEngine.execute`.

        Raises:
            Stopped: a signal asked for it; runs have saved their state.
            InvalidValueError: the address does not answer within ten seconds, or no machine has what a run needs.
            MetacalError: Ray is not installed.
        """
        with needs("ray"):
            import ray
            import ray.util.scheduling_strategies
        with StopRequest().listening() if stop is None else nullcontext(stop) as request:
            queue = RunQueue(specs, store, emit)
            if len(queue):
                named = data_dir or os.environ.get("METACAL_DATA")
                hardware = Hardware(accelerator="gpu" if self.gpus else "cpu", threads=max(1, int(self.cpus)))
                with connect(ray, self.address), share(store) as (shared, mark):
                    check_resources(ray, self.cpus, self.gpus)
                    place = Place(shared, hardware, Path(named).resolve() if named else None)
                    Tasks(ray, self, place, mark).execute(queue, emit, request)
            return queue.failures


class Tasks:
    """The tasks of one call of `RayEngine.execute`; each must see the mark, and stops when it is gone."""

    def __init__(self, ray: ModuleType, engine: RayEngine, place: Place, mark: Path) -> None:
        self.ray, self.place, self.mark = ray, place, mark
        self.retries = engine.retries
        self.task = ray.remote(num_cpus=engine.cpus, num_gpus=engine.gpus, max_retries=engine.retries)(execute_task)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )  # beside this process: the mailbox must not be lost with another machine
        self.mailbox = ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        self._running: dict[Any, RunSpec] = {}
        self._mail: Any = None

    def execute(self, queue: RunQueue, emit: Listener, stop: StopRequest) -> None:
        """Execute until nothing is left, or until asked to stop."""
        deadline = None
        try:
            while self._running or (len(queue) and deadline is None):
                if stop and deadline is None:
                    deadline = time.monotonic() + STOP_SECONDS
                    self.mark.unlink()
                while deadline is None and (spec := queue.take()) is not None:
                    named = self.task.options(name=f"metacal:{spec.title}")
                    self._running[named.remote(spec, self.place, self.mark, self.mailbox)] = spec
                done = self._wait()
                for seconds in (MAIL_SECONDS, MAIL_SECONDS) if done else (0.0,):  # asked for before, and after the end
                    self._pass_on(emit, seconds)
                for task in done:
                    spec, outcome = self._running.pop(task), self._outcome(task)
                    if not (deadline is not None and outcome.kind == "stopped"):
                        queue.settle(spec, outcome)
                if deadline is not None and time.monotonic() > deadline:
                    break
            if deadline is not None:
                raise Stopped(stop.signal)
        finally:
            for task in self._running:
                with suppress(self.ray.exceptions.RayError):
                    self.ray.cancel(task, force=True)
            self.ray.kill(self.mailbox)

    def _wait(self) -> list[Any]:
        if not self._running:
            time.sleep(PAUSE)
            return []
        done: list[Any] = self.ray.wait(list(self._running), num_returns=len(self._running), timeout=PAUSE)[0]
        return done

    def _pass_on(self, emit: Listener, seconds: float) -> None:
        """Take what is in the mailbox; an answer that is late is waited for next time, not lost."""
        if self._mail is None:
            self._mail = self.mailbox.drain.remote()
        if not self.ray.wait([self._mail], timeout=seconds)[0]:
            return
        mail, self._mail = self._mail, None
        with suppress(self.ray.exceptions.RayError):  # it was lost, and is restarted; outcomes come another way
            for event in self.ray.get(mail):
                emit(event)

    def _outcome(self, task: Any) -> Outcome:
        errors = self.ray.exceptions
        try:
            outcome: Outcome = self.ray.get(task)
        except errors.RayError as error:
            first_line = sentence(error).strip().splitlines()[0]
            times = f"{self.retries + 1} times" if self.retries else "once"
            died = isinstance(error, (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError))
            return Outcome("failed", error=f"Its worker died {times}: {first_line}" if died else first_line)
        return outcome


class Mailbox:
    """An actor that holds events until the driver takes them."""

    def __init__(self) -> None:
        self._events: list[RunEvent] = []

    def put(self, event: RunEvent) -> None:
        """Leave an event."""
        self._events.append(event)

    def drain(self) -> list[RunEvent]:
        """Take all events."""
        events, self._events = self._events, []
        return events


def execute_task(spec: RunSpec, place: Place, mark: Path, mailbox: Any) -> Outcome:
    """Run a spec on a machine of the cluster, for as long as the mark in the store is there."""
    import ray

    if not is_there(mark):
        where = f"{mark.parent} on {platform.node()}"
        return Outcome("failed", error=f"The store must be a path that all machines share, got another one: {where}.")
    stop, done = StopRequest(), threading.Event()
    last: list[Any] = []

    def tell(event: RunEvent) -> None:
        last[:] = [mailbox.put.remote(event)]

    def watch() -> None:
        while not done.wait(WATCH_SECONDS):
            if not is_there(mark):
                stop.signal = signal.SIGTERM

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        outcome = attempt(spec, place, tell, stop)
    finally:
        done.set()
        watching.join(timeout=5.0)
    with suppress(ray.exceptions.RayError):  # so that the driver hears of the last epoch before it hears of the end
        ray.get(last, timeout=30.0)
    return outcome


def is_there(mark: Path) -> bool:
    """Whether a file exists; it is opened, as a network file system may answer from its cache otherwise."""
    try:
        mark.open().close()
    except FileNotFoundError:
        return False
    except OSError:  # one that cannot be reached for a moment is no request to stop
        return True
    return True


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
    """Raise unless a Ray cluster answers at an address within seconds."""
    deadline = time.monotonic() + seconds
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidValueError(f"{ADDRESS}, got {address!r}.")
    probe = [sys.executable, "-c", PROBE, address]
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        # Something listens. Whether that is Ray is asked in another process: a client that waits cannot be called off.
        subprocess.run(probe, timeout=max(0.1, deadline - time.monotonic()), check=True, capture_output=True)
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        said = "something listens there, but it does not answer as Ray does"
        cause = said if isinstance(error, subprocess.SubprocessError) else getattr(error, "strerror", None) or error
        raise InvalidValueError(
            f"{ADDRESS}, got {address!r}, which did not answer within {seconds:g} s: {cause}. "
            "Is `ray start --head` running there, and the port reachable?"
        ) from None
