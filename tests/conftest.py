"""Shared fixtures: golden vectors, real data where it is to be had, and one thread so that runs repeat."""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from metacal import bf16
from metacal.cli import main

torch.set_num_threads(1)

GOLDEN = Path(__file__).parent / "golden" / "reference.npz"


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    """Inputs and outputs of the published functions, as ``group/case/name``."""
    with np.load(GOLDEN, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data, found through METACAL_TEST_DATA; the test is skipped without it."""
    folder = os.environ.get("METACAL_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("METACAL_TEST_DATA does not name a folder with the test data")
    return Path(folder)


@pytest.fixture
def bf16_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which bfloat16 kills the child process that tries it, for this process and those it starts."""
    monkeypatch.delenv(bf16.CAP[0], raising=False)
    monkeypatch.setenv(bf16.VERDICT, "")
    dying = (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert bf16.died_of(dying) == "SIGILL"


@pytest.fixture
def no_room() -> Callable[[], AbstractContextManager[None]]:
    """A context in which no file can grow beyond 16 bytes, as on a disk that fills up in the middle of a write."""

    @contextmanager
    def limit() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit


@pytest.fixture
def metacal(monkeypatch, capsys):
    """Run the command in this process, on a wide terminal: ``(status, output, errors)``."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["metacal", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        output, errors = capsys.readouterr()
        return left.value.code, output, errors.lstrip("\n")  # rich < 14.3 ends a progress that is off with a line

    return run
