"""What must be settled before torch is loaded, here above the tests; worker processes inherit the environment.

A CPU on which bfloat16 dies gets a cap on oneDNN's instruction set. One thread each, as two workers share two cores.
"""

import gc
import os
from pathlib import Path

import pytest

from metacal import bf16


def settle_bf16(cpu: str, command=bf16.TRY) -> None:
    """Keep oneDNN from AMX if the CPU advertises it and a child process that uses it dies."""
    name, value = bf16.CAP
    if "amx" in cpu and bf16.died_of(command):
        os.environ.setdefault(name, value)


def pytest_collection_finish(session):
    """Collect garbage again, and only what tests make."""
    gc.freeze()
    gc.enable()


def pytest_configure(config):
    """Declare the marker of tests that are skipped where bfloat16 dies in spite of the cap."""
    config.addinivalue_line("markers", "bf16: multiplies in bfloat16 on the CPU")


def pytest_runtest_setup(item):
    """Skip them."""
    if item.get_closest_marker("bf16") and (reason := bf16.died_of()):
        pytest.skip(f"bfloat16 kills the process on this CPU ({reason})")


os.fsync = lambda descriptor: None  # no test pulls the plug, and thousands of waits for a slow disk take minutes
os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.disable()  # while modules are imported, of which nothing is garbage: a third of the time that collection takes
settle_bf16(Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else "")
