"""`RayEngine`: every run is a task of a Ray cluster; a worker or a node that dies costs only the time since a save."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

from metacal.errors import InvalidValueError
from metacal.files import write_text
from metacal.lab.engines.attempt import Outcome, sentence
from metacal.lab.engines.events import Listener, silence
from metacal.lab.engines.ledger import Ledger
from metacal.lab.engines.local import stopping
from metacal.lab.engines.ray_cluster import connected, import_ray
from metacal.lab.engines.ray_task import Mailbox, execute_task
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

PAUSE = 0.2
MAIL_SECONDS = 30.0
"""How long the mailbox may take to answer before a run's end is told without its last epochs."""
STOP_SECONDS = 60.0
"""How long runs may take to save their state when asked to stop; they are cancelled after that."""


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

    @property
    def hardware(self) -> Hardware:
        """Of each run."""
        return Hardware(accelerator="gpu" if self.gpus else "cpu", threads=max(1, int(self.cpus)))

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
        ray = import_ray()
        with stopping(stop) as request:
            ledger = Ledger(specs, store, emit)
            if len(ledger):
                with connected(ray, self.address), shared(store) as (place, mark):
                    check_resources(ray, self.cpus, self.gpus)
                    Crew(ray, self, place, mark, data_dir).execute(ledger, emit, request)
            return ledger.failures


class Crew:
    """The tasks of one call of `RayEngine.execute`.

    Args:
        ray: the module.
        engine: what a task is given.
        store: where runs are kept.
        mark: a file in the store that every worker must see.
        data_dir: folder of the datasets.
    """

    def __init__(self, ray: ModuleType, engine: RayEngine, store: RunStore, mark: Path, data_dir: Path | None) -> None:
        self.ray, self.engine, self.store, self.mark = ray, engine, store, mark
        named = data_dir or os.environ.get("METACAL_DATA")
        self.data_dir = Path(named).resolve() if named else None
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self.mailbox = (
            ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        )  # beside this process: it must not be lost with a machine that is
        self._tasks: dict[Any, RunSpec] = {}
        self._taken: Any = None

    def execute(self, ledger: Ledger, emit: Listener, stop: StopRequest) -> None:
        """Execute until nothing is left, or until asked to stop."""
        deadline = None
        try:
            while self._tasks or (len(ledger) and deadline is None):
                if stop and deadline is None:
                    deadline = time.monotonic() + STOP_SECONDS
                    self.mailbox.ask_to_stop.remote(stop.signal)
                while deadline is None and (spec := ledger.take()) is not None:
                    self._tasks[self._submit(spec)] = spec
                done = self._wait()
                for seconds in (MAIL_SECONDS, MAIL_SECONDS) if done else (0.0,):  # asked for before, and after the end
                    self._pass_on(emit, seconds)
                for task in done:
                    spec, outcome = self._tasks.pop(task), self._outcome(task)
                    if not (deadline is not None and outcome.kind == "stopped"):
                        ledger.settle(spec, outcome)
                if deadline is not None and time.monotonic() > deadline:
                    break
            if deadline is not None:
                raise Stopped(stop.signal)
        finally:
            for task in self._tasks:
                with suppress(self.ray.exceptions.RayError):
                    self.ray.cancel(task, force=True)
            self.ray.kill(self.mailbox)

    def _submit(self, spec: RunSpec) -> Any:
        engine = self.engine
        task = self.ray.remote(execute_task).options(
            name=f"metacal:{spec.title}",
            num_cpus=engine.cpus,
            num_gpus=engine.gpus,
            max_retries=engine.retries,
        )
        return task.remote(spec, self.store, self.mark, engine.hardware, self.data_dir, self.mailbox)

    def _wait(self) -> list[Any]:
        if not self._tasks:
            time.sleep(PAUSE)
            return []
        done: list[Any] = self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=PAUSE)[0]
        return done

    def _pass_on(self, emit: Listener, seconds: float = 0.0) -> None:
        """Take what is in the mailbox; an answer that is late is waited for next time, not lost."""
        if self._taken is None:
            self._taken = self.mailbox.drain.remote()
        if not self.ray.wait([self._taken], timeout=seconds)[0]:
            return
        taken, self._taken = self._taken, None
        try:
            events = self.ray.get(taken)
        except self.ray.exceptions.RayError:  # the mailbox was lost, and is restarted; outcomes come another way
            return
        for event in events:
            emit(event)

    def _outcome(self, task: Any) -> Outcome:
        errors = self.ray.exceptions
        try:
            outcome: Outcome = self.ray.get(task)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            times = f"{self.engine.retries + 1} times" if self.engine.retries else "once"
            return Outcome("failed", error=f"Its worker died {times}: {first_line(error)}")
        except errors.RayError as error:
            return Outcome("failed", error=first_line(error))
        return outcome


@contextmanager
def shared(store: RunStore) -> Iterator[tuple[RunStore, Path]]:
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


def first_line(error: BaseException) -> str:
    """What Ray's page of text begins with."""
    return sentence(error).strip().splitlines()[0]
