"""The environment of a run or measurement, stored with its figures: versions, machine and commit."""

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2]


def environment() -> dict[str, Any]:
    """Return the machine and the relevant versions."""
    return {
        **{package: version(package) for package in ("metacal", "torch", "lightning-fabric", "numpy")},
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def provenance(command: str, *sources: Path) -> dict[str, Any]:
    """Return the command, date, commit, versions and machine, to store with figures.

    Args:
        command: as typed.
        sources: further folders that the figures depend on; see `commit`.
    """
    known = environment()
    del known["started"]
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {"command": command, "date": date, "commit": commit(*sources), **known, "system": platform.system()}


def processor() -> str:
    """Return the processor's model name; elsewhere than on Linux the platform's name for it, which may be empty."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def commit(*also: Path) -> str | None:
    """Return the commit of metacal's checkout, if it runs from one; never that of a project it is installed in.

    Args:
        also: further source folders; uncommitted changes to them, or to the package, are mentioned.
    """
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git("rev-parse", "--short=12", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *map(str, also))
    return f"{head} with changes" if head and changes else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def is_first_process(devices: int = 1) -> bool:
    """Whether this is the main process of a run; with one device, every process of a Slurm job is a run of its own."""
    names = ("RANK", "LOCAL_RANK", *(("SLURM_PROCID",) if devices > 1 else ()))
    return int(next((os.environ[name] for name in names if name in os.environ), "0")) == 0
