"""CIFAR-10-C and CIFAR-100-C: test images under corruptions, published where they are there, else generated.

What is published is an array for each corruption, five severities after each other. The arrays are mapped, not read: a
severity costs the memory of its own images. The archive is a plain tar file, so they are mapped inside it.
"""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.errors import DamagedFileError, MissingDataError
from metacal.lab.data.corruptions import SEVERITIES, check_severity, corrupt, find_corruption
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import READ_ERRORS, RemoteFile, Source, damaged, first_found
from metacal.lab.data.sources.cifar import CIFAR10, CIFAR100
from metacal.seeding import mixed

LABELS = "labels"
TEST = 14
"""Sets the random numbers of generated test sets apart from those of others with the same seed."""


@dataclass(frozen=True, eq=False)
class PublishedArrays:
    """The arrays of a folder or archive, mapped: by name, ``(5 n, 32, 32, 3)`` uint8, and ``labels`` ``(5 n,)``."""

    path: Path
    arrays: Mapping[str, NDArray[Any]]

    def read(self, name: str, severity: int) -> Examples:
        """The images of one corruption and severity, with their labels."""
        name = find_corruption(name).name
        check_severity(severity)
        images, labels = self.arrays.get(name), self.arrays[LABELS]
        if images is None:
            raise MissingDataError(f"{self.path} must hold {name}.npy, got {', '.join(sorted(self.arrays))}.")
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise damaged(self.path, f"{name}.npy must be uint8 (rows, H, W, 3), got {images.dtype} {images.shape}")
        if len(images) != len(labels) or len(labels) % len(SEVERITIES):
            raise damaged(
                self.path,
                f"{name}.npy must hold {len(SEVERITIES)} severities of as many rows as labels.npy has for each, got "
                f"{len(images):,} rows and {len(labels):,} labels",
            )
        rows = len(labels) // len(SEVERITIES)
        part = slice((severity - 1) * rows, severity * rows)
        chosen = np.ascontiguousarray(np.asarray(images[part]).transpose(0, 3, 1, 2))
        return Examples(torch.from_numpy(chosen), torch.from_numpy(labels[part].astype(np.int64)))


def corrupted_examples(examples: Examples, name: str, severity: int) -> Examples:
    """All examples under one corruption; the seed is one for all runs, as the published arrays are."""
    return replace(examples, inputs=corrupt(examples.inputs, name, severity, seed=mixed(TEST, 0)))


def open_arrays(folder: Path, dataset: str) -> PublishedArrays | None:
    """The published arrays of a (clean) dataset, or None if it has none or they are not there."""
    source = PUBLISHED.get(dataset)
    found = source.search(folder) if source is not None and source.search is not None else ()
    return map_arrays(*found) if found else None


def map_arrays(path: Path) -> PublishedArrays:
    """Map every array in a folder or an archive."""
    arrays = _map_folder(path) if path.is_dir() else _map_archive(path)
    if LABELS not in arrays:
        raise damaged(path, f"it does not hold {LABELS}.npy")
    if arrays[LABELS].ndim != 1 or arrays[LABELS].dtype.kind not in "iu":
        raise damaged(path, f"{LABELS}.npy must be integers (rows,), got {arrays[LABELS].dtype} {arrays[LABELS].shape}")
    return PublishedArrays(path, arrays)


def _map_folder(path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for file in sorted(path.glob("*.npy")):
        try:
            arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, *READ_ERRORS) as error:
            raise damaged(file, error) from None
    return arrays


def _map_archive(path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as file:
            for member in archive:
                name = PurePosixPath(member.name)
                if member.isreg() and name.suffix == ".npy":
                    arrays[name.stem] = _map_member(path, file, member)
    except DamagedFileError:
        raise
    except (ValueError, *READ_ERRORS) as error:
        raise damaged(path, error) from None
    return arrays


def _map_member(path: Path, file: Any, member: tarfile.TarInfo) -> NDArray[Any]:
    """An array inside an archive, mapped where its values are."""
    file.seek(member.offset_data)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    first = file.tell()
    if is_fortran or dtype.hasobject or first - member.offset_data + dtype.itemsize * np.prod(shape) > member.size:
        raise damaged(path, f"{member.name} is not a plain array of its size")
    return np.memmap(path, dtype, "r", first, shape)


def load(clean: Source, folder: Path, *, corruption: str = "gaussian_noise", severity: int = 1) -> Dataset:
    """The clean dataset with its test images under one corruption at a severity from 1 to 5."""
    dataset, arrays = clean.load(folder), open_arrays(folder, clean.name)
    if arrays is None:
        test, made_of = corrupted_examples(dataset.test, corruption, severity), "generated corruptions"
    else:
        test, made_of = arrays.read(corruption, severity), str(arrays.path)
    return replace(dataset, name=PUBLISHED[clean.name].name, test=test, files=(*dataset.files, made_of))


def _search(published: str, folder: Path) -> tuple[Path, ...]:
    """The folder or archive of the arrays: extracted before packed."""
    found = folder if (folder / f"{LABELS}.npy").is_file() else first_found(folder, published, f"{published}*.tar")
    return () if found is None else (found,)


def _check(clean: Source, folder: Path) -> None:
    """Read the labels and every corruption that is there, to its end."""
    arrays = map_arrays(*PUBLISHED[clean.name].find(folder))
    for name in arrays.arrays:
        for severity in SEVERITIES if name != LABELS else ():
            arrays.read(name, severity)


def _source(clean: Source, published: str, record: int, md5: str) -> Source:
    url = f"https://zenodo.org/records/{record}/files/{published}.tar"
    return Source(
        f"{clean.name}-c",
        f"{published.removesuffix('-C')}'s test images under 19 corruptions at 5 severities",
        partial(load, clean),
        partial(_search, published),
        f"the folder {published} or {published}.tar",
        (RemoteFile(f"{published}.tar", url, f"md5:{md5}", 2918),),
        clean.shape,
        partial(_check, clean),
        "published arrays where they are there, else generated",
    )


CIFAR10_C = _source(CIFAR10, "CIFAR-10-C", 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499")
CIFAR100_C = _source(CIFAR100, "CIFAR-100-C", 3555552, "11f0ed0f1191edbf9fa23466ae6021d3")
PUBLISHED = {CIFAR10.name: CIFAR10_C, CIFAR100.name: CIFAR100_C}
