"""What a run or a measurement ran on: versions, machine, and the commit of the source; stored with its figures."""

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2]


def environment() -> dict[str, Any]:
    """The machine and the versions of what matters."""
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
    """What is kept with figures: the command that made them, when, at which commit, with which versions, and where.

    Args:
        command: as it was typed.
        sources: folders beside the package that the figures depend on, see `commit`.
    """
    known = environment()
    del known["started"]
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(*sources),
        **known,
        "system": platform.system(),
    }


def processor() -> str:
    """The model name of the processor; what else the platform calls it where it has none, which may be nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit(*also: Path) -> str | None:
    """Of the source that runs, where it is a checkout; not of a project it is merely installed in.

    Args:
        also: folders that count as source too: changes to them, or to the package, since the commit are mentioned.
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


def is_first_process() -> bool:
    """Whether this is the process that the others were, or will be, started beside."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
