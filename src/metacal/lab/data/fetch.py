"""Downloads datasets, and checks their hashes and that every file can be read."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from metacal.errors import DamagedFileError, DownloadError, needs
from metacal.lab.data.files import HashCheck, RemoteFile, Source, check_hash, data_folder
from metacal.lab.data.sources import SOURCES, find_source, load_dataset

RETRIES = 2
ProgressOf = Callable[[RemoteFile], Any]


class Stock(NamedTuple):
    """A dataset, its files in the data folder (none if one is missing), and their size or that of the download."""

    source: Source
    files: tuple[Path, ...]
    megabytes: float


def take_stock(folder: str | Path | None = None) -> list[Stock]:
    """Return, for every named dataset, what the data folder has of it."""
    stocks = []
    for source in SOURCES.values():
        files = source.search(data_folder(folder))
        inside = [file for path in files for file in (path, *path.rglob("*")) if file.is_file()]
        to_get = sum(remote.megabytes for remote in source.downloads)
        stocks.append(Stock(source, files, sum(file.stat().st_size for file in inside) / 1e6 if files else to_get))
    return stocks


def fetch_dataset(
    name: str,
    *,
    folder: str | Path | None = None,
    mirror: str | None = None,
    progress: ProgressOf | None = None,
) -> list[Path]:
    """Download the files of a dataset that are missing or have a wrong hash.

    A file is moved into place, replacing one with a wrong hash, only after its own hash was verified.

    Args:
        name: of the dataset; a built-in one has no files.
        folder: the data folder.
        mirror: fetch ``mirror/<file name>`` instead of the canonical source; the hashes are the same.
        progress: returns a progress bar, with tqdm's interface, for a file.

    Raises:
        DownloadError: a file could not be downloaded or saved, or the dataset has no download.
    """
    source, place = find_source(name), data_folder(folder)
    return [_fetch_file(remote, place, mirror, progress) for remote in remote_files(source, place)]


def remote_files(source: Source, folder: Path) -> tuple[RemoteFile, ...]:
    """Return the downloads of a dataset; raise if it needs files that cannot be downloaded."""
    if not source.built_in and not source.downloads:
        raise DownloadError(f"{source.name} cannot be fetched: put its files into the data folder, {folder}.")
    return source.downloads


def check_dataset(name: str, *, folder: str | Path | None = None) -> list[HashCheck]:
    """Compare the hashes of a dataset's files with the published ones and read the dataset once.

    Raises:
        MissingDataError: the dataset is not in the data folder.
        DamagedFileError: a file cannot be read, or has the wrong hash: the message has both hashes.
    """
    source, place = find_source(name), data_folder(folder)
    checks = [check_hash(path) for path in source.find(place) if path.is_file()]
    wrong = [f"{each.path}: expected {each.expected}, found {each.found}" for each in checks if each.is_good is False]
    if wrong:
        how = source.how_to_get(place)
        raise DamagedFileError(
            f"{source.name} is not as published. {'; '.join(wrong)}. To get the published files: {how}"
        )
    if source.check is not None:
        source.check(place)
    else:
        load_dataset(source.name, folder=folder)
    return checks


def _fetch_file(remote: RemoteFile, folder: Path, mirror: str | None, progress: ProgressOf | None) -> Path:
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
        headers={"Accept-Encoding": "identity"},  # otherwise a .gz file might arrive decompressed
    )
    options = {"registry": {remote.name: remote.hash}, "urls": {remote.name: url}, "retry_if_failed": RETRIES}
    try:
        pooch.create(path=folder, base_url="", **options).fetch(remote.name, downloader=downloader)
    except ValueError as error:
        got = re.search(r"but got (\w+)", str(error))
        if got is None:  # not a valid URL
            raise DownloadError(f"{url} could not be downloaded: {error}.") from None
        found = f"{remote.hash.partition(':')[0]}:{got[1]}"
        raise DamagedFileError(f"{url} is not the published file: expected {remote.hash}, found {found}.") from None
    except OSError as error:  # includes the errors of requests
        raise DownloadError(f"{url} could not be saved as {path}: {str(error) or type(error).__name__}.") from None
    return path
