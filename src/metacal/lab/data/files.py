"""Finding and reading files of datasets: archives are read in place, damage is named with its hash."""

import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from metacal.errors import DamagedFileError, MissingDataError
from metacal.lab.data.downloads import DOWNLOADS, known_hashes
from metacal.lab.data.folder import data_folder

MOST_BYTES = 2**30
"""No file inside an archive that we read is larger; one that says so is not what it should be."""

READ_ERRORS = (EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Verdict:
    """What a file's hash says.

    Attributes:
        path: the file.
        expected: the published ``algorithm:digest``; None if there is none.
        found: what it has.
        is_good: whether it is one of the known ones; None if none is known.
    """

    path: Path
    expected: str | None
    found: str
    is_good: bool | None


def first_found(folder: Path, patterns: Iterable[str]) -> Path | None:
    """The first path in a folder that fits a pattern; earlier patterns go first, then the alphabet."""
    for pattern in patterns:
        hits = sorted(folder.glob(pattern)) if folder.is_dir() else []
        if hits:
            return hits[0]
    return None


def missing(name: str, folder: Path, looked_for: str) -> MissingDataError:
    """The error that says what was looked for, where, and how to get it."""
    return MissingDataError(
        f"{name} is not in {folder}, where {looked_for} was looked for; get it by: {how_to_get(name, folder)} "
        "(another folder is named by --data-dir, `folder` or METACAL_DATA)."
    )


def how_to_get(name: str, folder: Path) -> str:
    """The command that downloads a dataset to a folder or, where there is none, what else to do."""
    return fetch_command(name, folder) if name in DOWNLOADS else f"putting its files into {folder}"


def fetch_command(name: str, folder: Path) -> str:
    """The command that downloads a dataset to a folder."""
    return f"metacal data fetch {name}" + ("" if folder == data_folder() else f" --data-dir {folder}")


def damaged(path: Path, reason: str) -> DamagedFileError:
    """The error that names a file that cannot be read, with expected and found hash where one is known."""
    text = f"{path} is damaged: {reason}"
    verdict = check_hash(path) if path.is_file() and known_hashes(path) else None
    if verdict is not None and not verdict.is_good:
        text += f"; expected {verdict.expected}, found {verdict.found}"
    return DamagedFileError(f"{text}.")


def check_hash(path: Path) -> Verdict:
    """Compare a file's hash with those that are known for its name."""
    known = known_hashes(path)
    algorithms = {digest.partition(":")[0] for digest in known} or {"md5"}
    found = {algorithm: f"{algorithm}:{file_digest(path, algorithm)}" for algorithm in algorithms}
    main = found[known[0].partition(":")[0]] if known else found["md5"]
    good = any(digest in found.values() for digest in known) if known else None
    return Verdict(path, known[0] if known else None, main, good)


def file_digest(path: Path, algorithm: str) -> str:
    """Hash of a whole file."""
    try:
        with path.open("rb") as file:
            digest = hashlib.new(algorithm)
            while part := file.read(2**20):
                digest.update(part)
            return digest.hexdigest()
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}.") from None


def read_bytes(path: Path) -> bytes:
    """All of a file, decompressed if its name ends in ``.gz``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except READ_ERRORS as error:
        raise damaged(path, _reason(error)) from None


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
    try:
        with path.open("rb") as raw, _decompressed(path, raw) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = PurePosixPath(member.name)
                    if name.is_absolute() or ".." in name.parts:
                        raise DamagedFileError(
                            f"{path} is refused: its member {member.name!r} leads out of the archive."
                        )
                    if not member.isreg() or not wanted(name):
                        continue
                    if member.size > MOST_BYTES:
                        raise DamagedFileError(
                            f"{path} is refused: its member {member.name!r} has {member.size:,} bytes."
                        )
                    content = archive.extractfile(member)
                    yield name, content.read() if content is not None else b""
            while stream.read(2**20):
                pass
    except READ_ERRORS as error:
        raise damaged(path, _reason(error)) from None


def _decompressed(path: Path, raw: object) -> gzip.GzipFile:
    """The tar stream in a file, whether it is compressed or not."""
    if path.name.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[call-overload, no-any-return]
    return raw  # type: ignore[return-value]


def _reason(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".").replace("\n", " ")
