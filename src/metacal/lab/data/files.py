"""The files of datasets: their places, downloads and hashes, and how to read archives without unpacking them."""

import glob
import gzip
import inspect
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from metacal.errors import DamagedFileError, MissingDataError, needs
from metacal.lab.data.dataset import Dataset

VARIABLE = "METACAL_DATA"
MOST_BYTES = 2**30
"""Larger than any file inside the archives that we read: a larger one is refused."""
READ_ERRORS = (EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError)


class Shape(NamedTuple):
    """Number of training samples, input shape, classes and kind of a dataset; known before download."""

    samples: int
    input_shape: tuple[int, ...]
    num_classes: int
    kind: str = "image"


class RemoteFile(NamedTuple):
    """A file to download to the data folder; its hash is ``algorithm:digest``."""

    name: str
    url: str
    hash: str
    megabytes: float
    also: tuple[str, ...] = ()  # hashes of other valid editions


@dataclass(frozen=True)
class Source:
    """A named dataset."""

    name: str  # e.g. ``cifar10``
    title: str  # a one-line description
    # Reads it from the data folder (built-in sources take none); its keyword-only arguments are the dataset's options.
    load: Callable[..., Dataset]
    # For each file or folder that `load` reads: glob patterns in the data folder, best first. Empty if built in.
    patterns: tuple[tuple[str, ...], ...] = ()
    looked_for: str = "its files"  # description of the patterns
    downloads: tuple[RemoteFile, ...] = ()
    shape: Shape | None = None  # None if it depends on options
    check: Callable[[Path], None] | None = None  # reads everything, if `load` reads only a part
    test_set: str = "its own"  # description of the test samples
    passed_on: tuple[str, ...] = ()  # further options, which `load` passes on

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of `load`."""
        parameters = inspect.signature(self.load).parameters.values()
        return (*(each.name for each in parameters if each.kind is each.KEYWORD_ONLY), *self.passed_on)

    @property
    def built_in(self) -> bool:
        """Whether it needs no files."""
        return not self.patterns

    def search(self, folder: Path) -> tuple[Path, ...]:
        """Return the files that `load` reads; empty if one is missing."""
        hits = [
            next((folder / hit for each in patterns for hit in sorted(glob.glob(each, root_dir=folder))), None)
            for patterns in self.patterns
        ]
        found = tuple(hit for hit in hits if hit is not None)
        return found if len(found) == len(hits) else ()

    def find(self, folder: Path) -> tuple[Path, ...]:
        """Like `search`, but raise an error with instructions if a file is missing."""
        found = self.search(folder)
        if not found and not self.built_in:
            raise MissingDataError(
                f"{self.name} is not in {folder} (searched for {self.looked_for}); to get it: "
                f"{self.how_to_get(folder)} (to use another folder, set --data-dir, `folder` or {VARIABLE})."
            )
        return found

    def how_to_get(self, folder: Path) -> str:
        """Return the command that downloads it, or other instructions."""
        if not self.downloads:
            return f"put its files into {folder}"
        return f"metacal data fetch {self.name}" + ("" if folder == data_folder() else f" --data-dir {folder}")


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the data folder: the argument, else METACAL_DATA, else the user's cache folder."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    with needs("lab"):
        import pooch
    return Path(pooch.os_cache("metacal"))


class HashCheck(NamedTuple):
    """A file's hash and the published one; ``is_good`` is None if no hash is published."""

    path: Path
    expected: str | None
    found: str
    is_good: bool | None


def check_hash(path: Path) -> HashCheck:
    """Compare a file's hash with the known ones for its name, the published one first."""
    with needs("lab"):
        import pooch
    from metacal.lab.data.sources import SOURCES  # imports this module

    remotes = (remote for source in SOURCES.values() for remote in source.downloads)
    known = next(((each.hash, *each.also) for each in remotes if path.name == Path(each.name).name), ())
    algorithms = [digest.partition(":")[0] for digest in known] or ["md5"]
    try:
        found = {algorithm: f"{algorithm}:{pooch.file_hash(path, algorithm)}" for algorithm in set(algorithms)}
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}.") from None
    is_good = any(digest in found.values() for digest in known) if known else None
    return HashCheck(path, known[0] if known else None, found[algorithms[0]], is_good)


def damaged(path: Path, reason: str | BaseException) -> DamagedFileError:
    """Return the error for an unreadable file, with expected and actual hash if known."""
    if isinstance(reason, BaseException):
        message = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        reason = message.rstrip(".").replace("\n", " ")
    text = f"{path} is damaged: {reason}"
    if path.is_file() and (checked := check_hash(path)).is_good is False:
        text += f"; expected {checked.expected}, found {checked.found}"
    return DamagedFileError(f"{text}.")


def read_bytes(path: Path) -> bytes:
    """Read a whole file, decompressed if its name ends in ``.gz``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except READ_ERRORS as error:
        raise damaged(path, error) from None


def read_members(path: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield name and contents of the wanted files in a folder, or in a tar archive without unpacking it.

    An archive with a path that leads out of it (absolute, or through ``..``) is refused; links and devices are ignored.
    A compressed archive is read to its end, which verifies its checksum.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = PurePosixPath(file.relative_to(path).as_posix())
            if wanted(name) and file.is_file():
                yield name, read_bytes(file)
        return
    is_packed = path.name.endswith((".gz", ".tgz"))
    try:
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = PurePosixPath(member.name)
                    refused = f"{path} is refused: its member {member.name!r}"
                    if name.is_absolute() or ".." in name.parts:
                        raise DamagedFileError(f"{refused} leads out of the archive.")
                    if member.isreg() and wanted(name):
                        if member.size > MOST_BYTES:
                            raise DamagedFileError(f"{refused} has {member.size:,} bytes.")
                        content = archive.extractfile(member)
                        yield name, content.read() if content is not None else b""
            while stream.read(2**20):
                pass
    except READ_ERRORS as error:
        raise damaged(path, error) from None
