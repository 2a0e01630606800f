"""`LocalEngine`: runs in this process, or in several processes of this machine."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection

import torch

from metacal.functional.arguments import check_integer
from metacal.lab.engines.attempt import Engine, Outcome, Place, RunEvent, RunQueue, attempt
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest

ATTEMPTS = 2
"""A run whose process dies is tried this often."""
PAUSE = 0.1
DIED = Outcome("died", error=f"Its process died {ATTEMPTS} times: killed, or out of memory?")


class LocalEngine(Engine):
    """Executes runs on this machine.

    Args:
        jobs: how many at a time. One runs in this process; more run in processes of their own, which share the cores
            (and take turns on the GPUs, if there are any).
        hardware: of each run.

    Examples:
        >>> import tempfile
        >>> from metacal.lab.training import build_spec
        >>> from metacal.lab.training.run_folder import RunStore
        >>> spec = build_spec({"dataset": "digits", "epochs": 1, "train_size": 64})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     failures = LocalEngine().execute([spec], RunStore(folder))
        ...     failures, RunStore(folder).state(spec)
        ({}, 'complete')
    """

    def __init__(self, jobs: int = 1, hardware: Hardware | None = None) -> None:
        check_integer("jobs", jobs, 1)
        self.jobs = jobs
        self.hardware = hardware or Hardware()

    def complete(self, queue: RunQueue, place: Place, stop: StopRequest) -> None:
        """Execute one run after the other here, or several at a time in processes."""
        if self.jobs > 1:
            threads = self.hardware.threads or max(1, len(os.sched_getaffinity(0)) // self.jobs)
            shared = self.hardware.model_copy(update={"threads": threads})
            execute_in_processes(self.jobs, queue, replace(place, hardware=shared), stop)
            return
        while len(queue):
            spec = queue.take()
            stop.raise_if_asked()
            if spec is None:
                time.sleep(PAUSE)
                continue
            outcome = attempt(spec, replace(place, hardware=self.hardware), queue.emit, stop)
            if outcome.kind == "stopped":
                raise Stopped(outcome.signal)
            queue.settle(spec, outcome)


def execute_in_processes(jobs: int, queue: RunQueue, place: Place, stop: StopRequest) -> None:
    """Execute until nothing is left, or until asked to stop; a run whose process dies is resumed in another."""
    gpus = visible_gpus(place.hardware)
    running: dict[int, RunProcess] = {}
    deaths: Counter[str] = Counter()
    asked = False
    try:
        while running or (len(queue) and not stop):
            if stop and not asked:
                asked = True
                for process in running.values():
                    process.ask_to_stop()
            for slot in range(jobs):
                if slot not in running and not stop and (spec := queue.take()) is not None:
                    running[slot] = RunProcess(spec, place, gpus[slot % len(gpus)] if gpus else None)
            ready = connection.wait([process.line for process in running.values()], timeout=PAUSE)
            for slot, process in list(running.items()):
                told = process.receive() if process.line in ready else None
                if not isinstance(told, Outcome):
                    if told is not None:
                        queue.emit(told)
                    continue
                running.pop(slot).close()
                deaths[process.spec.hash] += told.kind == "died"
                if told.kind == "died" and (asked or deaths[process.spec.hash] < ATTEMPTS):
                    queue.put_back(process.spec)
                elif not (asked and told.kind == "stopped"):
                    queue.settle(process.spec, told)
        if asked or len(queue):
            raise Stopped(stop.signal)
    finally:
        for process in running.values():
            process.close()


class RunProcess:
    """A run in a process of its own: when it dies, no other run is touched.

    It is forked from a fresh process that has imported all it needs and nothing else: no GPU, no threads, no data.
    Events, then the outcome, come through a pipe. A word through it, or its end, asks for a stop.
    """

    def __init__(self, spec: RunSpec, place: Place, gpu: str | None) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.spec = spec
        self.line, theirs = context.Pipe()
        # The environment as it is now: the process that this one is forked from may be older.
        environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
        self.process = context.Process(target=work, args=(spec, place, theirs, environment))
        # Ctrl-C reaches every process of a terminal; runs are asked to stop by this one, and do not hear it themselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def ask_to_stop(self) -> None:
        """Ask the run to save and stop."""
        with suppress(OSError):
            self.line.send("stop")

    def receive(self) -> RunEvent | Outcome:
        """What it tells next."""
        try:
            told: RunEvent | Outcome = self.line.recv()
        except (EOFError, OSError):
            return DIED
        return told

    def close(self) -> None:
        """Wait for the process, whose run is saved if it is not over."""
        self.line.close()
        self.process.join()


def work(spec: RunSpec, place: Place, line: Connection, environment: dict[str, str]) -> None:
    """What the process of a run does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    stop = StopRequest()

    def obey() -> None:
        with suppress(EOFError, OSError):  # the process that started this one is gone
            line.recv()
        stop.signal = signal.SIGTERM

    def tell(what: RunEvent | Outcome) -> None:
        with suppress(OSError):  # nobody is there any more: the run is stopped
            line.send(what)

    threading.Thread(target=obey, daemon=True).start()
    with stop.listening():
        tell(attempt(spec, place, tell, stop))


def visible_gpus(hardware: Hardware) -> list[str]:
    """The GPUs that runs may use, as CUDA names them; none if they are not asked for, or a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]
