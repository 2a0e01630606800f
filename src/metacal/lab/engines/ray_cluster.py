"""Getting to a Ray cluster, or being told within seconds that it is not there."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from metacal.errors import InvalidValueError, needs

ANSWER_SECONDS = 10.0
PROBE = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


def import_ray() -> ModuleType:
    """The module, which is an extra."""
    with needs("ray"):
        import ray
        import ray.util.scheduling_strategies
    return ray


@contextmanager
def connected(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Be a driver of the cluster; one that was connected before stays so afterwards."""
    if ray.is_initialized():
        yield
        return
    known = os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address
    if known is not None:
        check_answers(known)
    try:
        # Ray itself would wait for more than a minute, and then exit.
        ray.init(address=known or address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InvalidValueError(f"{rule()}, got {known or address!r}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def check_answers(address: str) -> None:
    """Raise unless a Ray cluster answers at an address within ten seconds."""
    deadline = time.monotonic() + ANSWER_SECONDS
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InvalidValueError(f"{rule()}, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
        # Something listens. Whether that is Ray is asked in another process: a client that waits cannot be called off.
        subprocess.run(
            [sys.executable, "-c", PROBE, address],
            timeout=max(0.1, deadline - time.monotonic()),
            check=True,
            capture_output=True,
        )
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        said = "something listens there, but it does not answer as Ray does"
        cause = said if isinstance(error, subprocess.SubprocessError) else getattr(error, "strerror", None) or error
        raise InvalidValueError(
            f"{rule()}, got {address!r}, which did not answer within {ANSWER_SECONDS:g} s: {cause}. "
            "Is `ray start --head` running there, and the port reachable?"
        ) from None


def rule() -> str:
    """What an address must be."""
    return "`address` must be HOST:PORT of a running Ray cluster, or auto on one of its machines"
