"""`RemoteStore`: runs at a URL (any that fsspec knows), worked on in a local folder and copied there and back.

A run folder needs renames and locks, which object stores do not have. So a run is made in a local folder; its files are
copied to the URL whenever a checkpoint was saved, in an order in which what is there can always be gone on from, and
``scores.json`` last. A lease, renewed while a run goes on, stands for the lock.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec  # type: ignore[import-untyped]

from metacal.errors import InUseError, InvalidValueError, StorageError
from metacal.lab.engines.lease import Lease
from metacal.lab.training import RunFolder, RunSpec
from metacal.lab.training.run_store import RunStore

LEASE = "lease.json"
NOT_COPIED = ("run.lock", LEASE)
ORDER = ("best.ckpt", "previous.ckpt", "last.ckpt", "hyperparameters.json", "scores.json")
"""What is copied after everything else, in this order: the state to go on from after what it speaks of."""


class RemoteStore(RunStore):
    """Runs by spec, kept at a URL.

    Args:
        url: such as ``s3://bucket/runs``; the package that fsspec needs for it must be installed on every machine.
        scratch: local folder in which runs are made; by default one of the machine's temporary folder.
        lease_seconds: a lease that is older is void. Clocks of the machines must agree to well within it.
        push_seconds: checkpoints that come sooner after the last copy are not copied.
    """

    def __init__(
        self, url: str, scratch: Path | None = None, *, lease_seconds: float = 120.0, push_seconds: float = 30.0
    ) -> None:
        name = hashlib.sha256(url.encode()).hexdigest()[:12]
        super().__init__(scratch or Path(tempfile.gettempdir()) / f"metacal-runs-{name}")
        self.url, self.lease_seconds, self.push_seconds = url.rstrip("/"), lease_seconds, push_seconds
        self._pushed: dict[str, tuple[int, int]] = {}
        self._leases: dict[str, Lease] = {}
        with told(url):
            fsspec.core.url_to_fs(url)

    def state(self, spec: RunSpec) -> str:
        """``missing``, ``begun`` or ``complete``, there."""
        system, path = self._place(spec)
        with told(self.url):
            if system.exists(f"{path}/scores.json"):
                return "complete"
            return "begun" if system.exists(f"{path}/spec.json") else "missing"

    def pull(self, spec: RunSpec) -> None:
        """Copy a run from there, unless what is here is as far."""
        system, path = self._place(spec)
        folder = self.folder(spec)
        with told(self.url):
            state = self.state(spec)
            if state == "missing" or folder.is_complete:
                return
            if state == "begun" and folder.exists and len(folder.read_history()) >= self._epochs(system, path):
                return
            found = [name for name in system.find(path) if not name.endswith(NOT_COPIED)]
            for name in sorted(found, key=lambda name: rank(Path(name))):
                target = folder.path / name.removeprefix(path).lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                beside = target.with_name(f".{target.name}.{uuid4().hex}")
                system.get_file(name, str(beside))
                beside.replace(target)

    def push(self, spec: RunSpec) -> None:
        """Copy what has changed of a run to there.

        Raises:
            InUseError: the run was held here, and another process has taken it over.
        """
        system, path = self._place(spec)
        home, lease = self.folder(spec).path, self._leases.get(spec.hash)
        files = [file for file in home.rglob("*") if file.is_file() and not file.name.startswith(".")]
        with told(self.url):
            if lease is not None and not lease.is_ours():
                raise InUseError(
                    f"{self.url}/{home.name} was taken over by another process when its lease could not be renewed for "
                    f"{self.lease_seconds:g} seconds: nothing more is copied there. What was made here is in {home}."
                )
            for file in sorted(files, key=rank):
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                seen = status.st_mtime_ns, status.st_size
                if file.name in NOT_COPIED or self._pushed.get(str(file)) == seen:
                    continue
                target = f"{path}/{file.relative_to(home).as_posix()}"
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), target)
                self._pushed[str(file)] = seen

    @contextmanager
    def outlines(self) -> Iterator[list[RunFolder]]:
        """Copies of the specs and scores of all runs there, in a folder of their own, for as long as this is open."""
        system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        with tempfile.TemporaryDirectory(prefix="metacal-outlines-") as home:
            with told(self.url):
                for path in system.ls(root, detail=False) if system.exists(root) else ():
                    for name in ("spec.json", "checksums.json", "scores.json"):
                        with suppress(FileNotFoundError, NotADirectoryError):
                            data = system.cat_file(f"{path.rstrip('/')}/{name}")
                            Path(home, Path(path).name).mkdir(exist_ok=True)
                            Path(home, Path(path).name, name).write_bytes(data)
            yield [RunFolder(path.parent) for path in sorted(Path(home).glob("*/spec.json"))]

    @contextmanager
    def lease(self, spec: RunSpec) -> Iterator[None]:
        """Hold a run there.

        Raises:
            InUseError: another process holds it.
        """
        system, path = self._place(spec)
        lease = Lease(system, f"{path}/{LEASE}", self.lease_seconds)
        with told(self.url):
            if not lease.take():
                raise InUseError(f"{self.url}/{Path(path).name} is in use by another process.")
        home = str(self.folder(spec).path)  # what others have written there since is not known
        self._pushed = {file: seen for file, seen in self._pushed.items() if not Path(file).is_relative_to(home)}
        self._leases[spec.hash] = lease
        try:
            with lease.renewed():
                yield
        finally:
            self._leases.pop(spec.hash, None)

    def _place(self, spec: RunSpec) -> tuple[Any, str]:
        system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        return system, f"{root}/{self.folder(spec).path.name}"

    def _epochs(self, system: Any, path: str) -> int:
        try:
            return len(system.cat_file(f"{path}/history.csv").splitlines()) - 1
        except FileNotFoundError:
            return 0


def open_store(place: str | Path) -> RunStore:
    """The store at a path, or at a URL.

    Examples:
        >>> type(open_store("runs")).__name__, type(open_store("memory://runs")).__name__
        ('RunStore', 'RemoteStore')
    """
    if "://" in str(place):
        return RemoteStore(str(place))
    return RunStore(place)


def rank(file: Path) -> tuple[int, str]:
    """When a file is copied."""
    return (ORDER.index(file.name) + 1 if file.name in ORDER else 0), str(file)


@contextmanager
def told(url: str) -> Iterator[None]:
    """Name the URL when something is wrong with it."""
    try:
        yield
    except (ImportError, ValueError) as error:
        raise InvalidValueError(
            f"The store must be a path or a URL that fsspec can open, got {url!r}: {error}"
        ) from None
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{url} could not be reached: {error}.") from None
