"""The files of datasets: where they are and come from, the hashes they are known by, and reading them in place."""

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
"""No file inside an archive that we read is larger; one that says so is not what it should be."""
READ_ERRORS = (EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError)


class Shape(NamedTuple):
    """Training samples of a dataset, the shape and kind of one, and the classes; known before its files are there."""

    samples: int
    input_shape: tuple[int, ...]
    num_classes: int
    kind: str = "image"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download to a place in the data folder, known by its ``algorithm:digest``."""

    name: str
    url: str
    hash: str
    megabytes: float
    also: tuple[str, ...] = ()  # hashes of other good editions


@dataclass(frozen=True)
class Source:
    """A dataset with a name."""

    name: str  # e.g. ``cifar10``
    title: str  # one line about it
    load: Callable[..., Dataset]  # reads it from the data folder; its keyword-only arguments are the dataset's options
    # the files in the data folder that `load` reads, none if one is missing; a dataset that is built in has no search,
    # and its `load` takes no folder
    search: Callable[[Path], tuple[Path, ...]] | None = None
    looked_for: str = "its files"  # by `search`, in words
    downloads: tuple[RemoteFile, ...] = ()
    shape: Shape | None = None  # None where options decide it
    check: Callable[[Path], None] | None = None  # reads everything, where `load` reads only a part
    test_set: str = "its own"  # where the test samples come from, in words
    passed_on: tuple[str, ...] = ()  # options beside those that `load` names

    @property
    def options(self) -> tuple[str, ...]:
        """Names of what `load` can be told."""
        parameters = inspect.signature(self.load).parameters.values()
        return (*(each.name for each in parameters if each.kind is each.KEYWORD_ONLY), *self.passed_on)

    @property
    def built_in(self) -> bool:
        """Whether it needs no files."""
        return self.search is None

    def find(self, folder: Path) -> tuple[Path, ...]:
        """The files that `load` reads; an error says what was looked for, where, and how to get it."""
        found = self.search(folder) if self.search is not None else ()
        if not found and not self.built_in:
            raise MissingDataError(
                f"{self.name} is not in {folder}, where {self.looked_for} was looked for; get it by: "
                f"{self.how_to_get(folder)} (another folder is named by --data-dir, `folder` or {VARIABLE})."
            )
        return found

    def how_to_get(self, folder: Path) -> str:
        """The command that downloads it to a folder or, where there is none, what else to do."""
        if not self.downloads:
            return f"putting its files into {folder}"
        return f"metacal data fetch {self.name}" + ("" if folder == data_folder() else f" --data-dir {folder}")


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of the datasets: the argument, else what METACAL_DATA names, else the user's cache folder."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    with needs("lab"):
        import pooch
    return Path(pooch.os_cache("metacal"))


def first_found(folder: Path, *patterns: str) -> Path | None:
    """The first path in a folder that fits a pattern; earlier patterns go first, then the alphabet."""
    if not folder.is_dir():
        return None
    return next((hit for pattern in patterns for hit in sorted(folder.glob(pattern))), None)


@dataclass(frozen=True)
class HashCheck:
    """A file's hash beside the published one; ``is_good`` is None where none is known."""

    path: Path
    expected: str | None
    found: str
    is_good: bool | None


def known_hashes(path: Path) -> tuple[str, ...]:
    """Hashes that a file of this name may have, the published one first; none if nothing is known about it."""
    from metacal.lab.data.sources import SOURCES  # whose files are read by this module

    remotes = (remote for source in SOURCES.values() for remote in source.downloads)
    return next(((each.hash, *each.also) for each in remotes if path.name == Path(each.name).name), ())


def check_hash(path: Path) -> HashCheck:
    """Compare a file's hash with those that are known for its name."""
    with needs("lab"):
        import pooch

    known = known_hashes(path)
    algorithms = [digest.partition(":")[0] for digest in known] or ["md5"]
    try:
        found = {algorithm: f"{algorithm}:{pooch.file_hash(path, algorithm)}" for algorithm in set(algorithms)}
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}.") from None
    is_good = any(digest in found.values() for digest in known) if known else None
    return HashCheck(path, known[0] if known else None, found[algorithms[0]], is_good)


def damaged(path: Path, reason: str | BaseException) -> DamagedFileError:
    """The error that names a file that cannot be read, with expected and found hash where one is known."""
    if isinstance(reason, BaseException):
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        reason = said.rstrip(".").replace("\n", " ")
    text = f"{path} is damaged: {reason}"
    if path.is_file() and known_hashes(path) and not (checked := check_hash(path)).is_good:
        text += f"; expected {checked.expected}, found {checked.found}"
    return DamagedFileError(f"{text}.")


def read_bytes(path: Path) -> bytes:
    """All of a file, decompressed if its name ends in ``.gz``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except READ_ERRORS as error:
        raise damaged(path, error) from None


def read_members(path: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and contents of the wanted files in a folder or a tar archive, which is read in place.

    Nothing is written. An archive with a name that leads out of it (absolute, or through ``..``) is refused as a whole;
    links and devices are passed over. A compressed archive is read to its end, so that its checksum is tested.
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
