"""`WorkerPool`: processes of this machine, each with one run at a time; deaths are noticed, stops are clean."""

import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from metacal.lab.engines.attempt import Outcome, attempt
from metacal.lab.engines.events import Listener, RunEvent
from metacal.lab.engines.ledger import Ledger
from metacal.lab.training import Hardware, RunSpec, Stopped, StopRequest
from metacal.lab.training.run_folder import RunStore

ATTEMPTS = 2
"""A run whose process dies is tried this often."""
PAUSE = 0.1


@dataclass
class Worker:
    """A process, the line to it, and the run it has."""

    process: BaseProcess
    line: Connection
    spec: RunSpec | None = None


class WorkerPool:
    """Executes the runs of a ledger in processes of their own.

    They are forked from a fresh process that has imported all they need and nothing else: no GPU, no threads, no data.

    Args:
        jobs: how many at most.
        hardware: of each run; the cores are divided unless it names a number of threads.
        store: where runs are kept.
        data_dir: folder of the datasets.
    """

    def __init__(self, jobs: int, hardware: Hardware, store: RunStore, data_dir: Path | None) -> None:
        threads = hardware.threads or max(1, len(os.sched_getaffinity(0)) // jobs)
        self.jobs, self.store, self.data_dir = jobs, store, data_dir
        self.hardware = hardware.model_copy(update={"threads": threads})
        self._workers: dict[int, Worker] = {}
        self._deaths: Counter[str] = Counter()

    def execute(self, ledger: Ledger, emit: Listener, stop: StopRequest) -> None:
        """Execute until nothing is left, or until asked to stop."""
        asked = False
        try:
            while len(ledger) or any(worker.spec for worker in self._workers.values()):
                if stop and not asked:
                    asked = True
                    for worker in self._workers.values():
                        worker.process.terminate()
                if asked and not any(worker.spec for worker in self._workers.values()):
                    break
                if not asked:
                    self._hand_out(ledger)
                lines = {worker.line: slot for slot, worker in self._workers.items()}
                for ready in connection.wait(list(lines), timeout=PAUSE) if lines else ():
                    self._listen(lines[ready], ledger, emit, asked)  # type: ignore[index]
            if asked:
                raise Stopped(stop.signal)
            for worker in self._workers.values():
                worker.line.close()  # an idle worker leaves when its line is closed
                worker.process.join()
        finally:
            for worker in self._workers.values():  # none is left unless something went wrong here
                worker.process.kill()
                worker.process.join()

    def _hand_out(self, ledger: Ledger) -> None:
        for slot in range(self.jobs):
            worker = self._workers.get(slot)
            if worker is not None and worker.spec is not None:
                continue
            spec = ledger.take()
            if spec is None:
                return
            if worker is None:
                worker = self._workers[slot] = self._start(slot)
            worker.spec = spec
            with suppress(OSError):  # it died while idle: the line says so when it is listened to
                worker.line.send(spec)

    def _start(self, slot: int) -> Worker:
        context = get_context("forkserver")
        context.set_forkserver_preload(["metacal.lab.engines.pool", "metacal.lab.training.pipeline"])
        ours, theirs = context.Pipe()
        environment = dict(os.environ)  # as it is now: the process they are forked from may be older
        gpu = gpu_of(slot, visible_gpus(self.hardware))
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        arguments = (theirs, self.store, self.hardware, self.data_dir, environment)
        process = context.Process(target=serve, args=arguments, name=f"metacal-{slot}", daemon=True)
        # Ctrl-C reaches every process of a terminal; a worker is told by this one, and does not hear it itself.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return Worker(process, ours)

    def _listen(self, slot: int, ledger: Ledger, emit: Listener, asked: bool) -> None:
        worker = self._workers[slot]
        try:
            message: RunEvent | Outcome = worker.line.recv()
        except (EOFError, OSError):
            self._bury(slot, ledger, asked)
            return
        if not isinstance(message, Outcome):
            emit(message)
            return
        spec, worker.spec = worker.spec, None
        assert spec is not None
        if not (asked and message.kind == "stopped"):
            ledger.settle(spec, message)

    def _bury(self, slot: int, ledger: Ledger, asked: bool) -> None:
        worker = self._workers.pop(slot)
        worker.line.close()
        worker.process.join()
        if worker.spec is None or asked:
            return
        self._deaths[worker.spec.hash] += 1
        if self._deaths[worker.spec.hash] < ATTEMPTS:
            ledger.put_back(worker.spec)
            return
        cause = death(worker.process.exitcode or 0)
        ledger.settle(worker.spec, Outcome("failed", error=f"Its process died {ATTEMPTS} times: {cause}."))


def serve(
    line: Connection, store: RunStore, hardware: Hardware, data_dir: Path | None, environment: dict[str, str]
) -> None:
    """What a worker does: runs specs that come down the line, and says what happens, until the line is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    stop = StopRequest()
    threading.Thread(target=stop_with_parent, args=(stop,), daemon=True).start()

    def tell(event: RunEvent) -> None:
        try:
            line.send(event)
        except OSError:  # nobody is there any more: save and leave
            stop.signal = signal.SIGTERM

    with stop.listening():
        while not stop:
            try:
                spec: RunSpec = line.recv()
                line.send(attempt(spec, store, hardware=hardware, data_dir=data_dir, emit=tell, stop=stop))
            except (EOFError, OSError):
                return


def stop_with_parent(stop: StopRequest) -> None:
    """Ask for a stop when the process that started this one is gone."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        stop.signal = signal.SIGTERM


def visible_gpus(hardware: Hardware) -> list[str]:
    """The GPUs that runs may use, as CUDA names them; none if they are not asked for, or a run takes several."""
    if hardware.accelerator not in ("auto", "gpu", "cuda") or hardware.devices > 1:
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(number) for number in range(count)]


def gpu_of(slot: int, gpus: list[str]) -> str | None:
    """The GPU of a worker: they take turns.

    Examples:
        >>> [gpu_of(slot, ["0", "1"]) for slot in range(3)]
        ['0', '1', '0']
    """
    return gpus[slot % len(gpus)] if gpus else None


def death(exitcode: int) -> str:
    """What an exit code says.

    Examples:
        >>> death(-9)
        'killed by SIGKILL (out of memory?)'
        >>> death(1)
        'exit code 1'
    """
    if exitcode >= 0:
        return f"exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    return f"killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
