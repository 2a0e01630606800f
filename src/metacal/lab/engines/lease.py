"""`Lease`: a small file at a URL that says which process has a run there, for stores that have no locks."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

LOOKS = 3
PAUSE = 0.05
"""Seconds between looks at a lease that is only half there: where writing is not one move, it may be on its way."""


class Lease:
    """One process's hold on one run, void when it was not renewed for a while.

    Another process may take a run whose lease is void, after an outage for instance. Then the lease is that one's: it
    is not renewed here any more, and not taken away either.

    Args:
        system: the file system.
        place: of the file.
        seconds: after which it is void.
    """

    def __init__(self, system: Any, place: str, seconds: float) -> None:
        self.system, self.place, self.seconds = system, place, seconds
        self.owner = uuid4().hex

    def take(self) -> bool:
        """Whether it could be had; of two processes that come at once the later one has it."""
        if time.time() - self._read().get("time", 0.0) < self.seconds:
            return False
        self.system.makedirs(self.place.rpartition("/")[0], exist_ok=True)
        self._write()
        time.sleep(min(1.0, self.seconds / 10))
        return self.is_ours()

    def is_ours(self) -> bool:
        """Whether it is still that of this process, as it stands there now."""
        return bool(self._read().get("owner") == self.owner)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Inside, it is renewed now and then, unless it is lost; given back at the end if it is ours."""
        done = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(done,), name="metacal-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()
            with suppress(Exception):  # one that cannot be given back is void soon
                if self.is_ours():
                    self.system.rm_file(self.place)

    def _keep(self, done: threading.Event) -> None:
        while not done.wait(self.seconds / 6):
            # A renewal that fails is made up for by the next; client libraries have errors of their own kinds.
            with suppress(Exception):
                if not self.is_ours():
                    return
                self._write()

    def _read(self) -> dict[str, Any]:
        for _ in range(LOOKS):
            try:
                found = json.loads(self.system.cat_file(self.place))
            except FileNotFoundError:
                return {}
            except ValueError:
                time.sleep(PAUSE)
                continue
            return found if isinstance(found, dict) else {}
        return {}

    def _write(self) -> None:
        self.system.pipe_file(self.place, json.dumps({"owner": self.owner, "time": time.time()}).encode())
