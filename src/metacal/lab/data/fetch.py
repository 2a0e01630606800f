"""Getting datasets, and checking what is there: hashes, and that every file can be read to its end."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metacal.errors import DamagedFileError, DownloadError, MissingDataError, needs
from metacal.lab.data.files import HashCheck, RemoteFile, Source, check_hash, data_folder
from metacal.lab.data.sources import SOURCES, find_source, load_dataset

RETRIES = 2
ProgressOf = Callable[[RemoteFile], Any]


@dataclass(frozen=True)
class Stock:
    """Whether a dataset can be loaded without a download; the files that would be read, and their size or its."""

    source: Source
    files: tuple[Path, ...]
    is_here: bool
    megabytes: float

    @property
    def is_subset(self) -> bool:
        """Whether the files say in their names that they are not the whole dataset."""
        return any("subset" in path.name for path in self.files)


def take_stock(folder: str | Path | None = None) -> list[Stock]:
    """What of the named datasets is in the data folder."""
    place, stocks = data_folder(folder), []
    for source in SOURCES.values():
        try:
            files = source.find(place)
            stocks.append(Stock(source, files, True, sum(map(_size, files)) / 1e6))
        except MissingDataError:
            stocks.append(Stock(source, (), False, sum(remote.megabytes for remote in source.downloads)))
    return stocks


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def fetch_dataset(
    name: str,
    *,
    folder: str | Path | None = None,
    mirror: str | None = None,
    progress: ProgressOf | None = None,
) -> list[Path]:
    """Download the files of a dataset that are not there with a good hash.

    A file is written under another name and moved into place once its hash is right, so nothing is left half-written;
    one that was there under its name with another hash is replaced then.

    Args:
        name: of the dataset; one that is built in has no files.
        folder: the data folder.
        mirror: fetch ``mirror/<file name>`` instead of the canonical source; the hashes are the same.
        progress: makes a progress bar (of tqdm's kind) for a file.

    Raises:
        DownloadError: one could not be downloaded or saved, or nobody offers the dataset for download.
    """
    source, place = find_source(name), data_folder(folder)
    return [_fetch_file(remote, place, mirror, progress) for remote in remote_files(source, place)]


def remote_files(source: Source, folder: Path) -> tuple[RemoteFile, ...]:
    """What is downloaded for a dataset; one that needs files and has no address is refused."""
    if not source.built_in and not source.downloads:
        raise DownloadError(f"{source.name} cannot be fetched: put its files into the data folder, {folder}.")
    return source.downloads


def check_dataset(name: str, *, folder: str | Path | None = None) -> list[HashCheck]:
    """Compare the hashes of a dataset's files with the published ones and read the dataset once.

    Raises:
        MissingDataError: it is not there.
        DamagedFileError: a file has another hash, or cannot be read; says which hash was expected and found.
    """
    source, place = find_source(name), data_folder(folder)
    files = [file for path in source.find(place) for file in ([path] if path.is_file() else sorted(path.glob("*.bin")))]
    checks = [check_hash(file) for file in files]
    wrong = [f"{each.path}: expected {each.expected}, found {each.found}" for each in checks if each.is_good is False]
    if wrong:
        raise DamagedFileError(
            f"{source.name} is not as published. {'; '.join(wrong)}. To get the published files: "
            + source.how_to_get(place)
        )
    if source.check is not None:
        source.check(place)
    else:
        load_dataset(source.name, folder=folder)
    return checks


def _fetch_file(remote: RemoteFile, folder: Path, mirror: str | None, progress: ProgressOf | None) -> Path:
    """Download one file unless it is there with a good hash."""
    with needs("lab"):
        import pooch

    path = folder / remote.name
    if path.is_file() and check_hash(path).is_good:
        return path
    url = remote.url if mirror is None else f"{mirror.rstrip('/')}/{path.name}"
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(
        progressbar=progress(remote) if progress is not None else False,
        chunk_size=2**18,
        timeout=60,
        headers={"Accept-Encoding": "identity"},  # or a .gz file might come unpacked
    )
    store = pooch.create(
        path=folder, base_url="", registry={remote.name: remote.hash}, urls={remote.name: url}, retry_if_failed=RETRIES
    )
    try:
        store.fetch(remote.name, downloader=downloader)
    except ValueError as error:
        got = re.search(r"but got (\w+)", str(error))
        if got is None:  # an address that is none
            raise DownloadError(f"{url} could not be downloaded: {error}.") from None
        found = f"{remote.hash.partition(':')[0]}:{got[1]}"
        raise DamagedFileError(f"{url} is not the published file: expected {remote.hash}, found {found}.") from None
    except OSError as error:  # requests' errors are among these
        raise DownloadError(f"{url} could not be saved as {path}: {str(error) or type(error).__name__}.") from None
    return path
