"""CIFAR-10-C and CIFAR-100-C as published: an array for each corruption, five severities after each other.

The arrays are mapped, not read: a severity costs the memory of its own images. The archive is a plain tar file, so they
are mapped inside it and nothing is unpacked.
"""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.errors import DamagedFileError, MissingDataError
from metacal.lab.data.corruptions.registry import SEVERITIES, check_severity, find_corruption
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.domains import corrupted_examples
from metacal.lab.data.files import READ_ERRORS, damaged, first_found, missing

PUBLISHED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
LABELS = "labels"


@dataclass(frozen=True, eq=False)
class PublishedArrays:
    """The arrays of one dataset, mapped.

    Attributes:
        path: the folder or the archive.
        arrays: by name, ``(5 n, 32, 32, 3)`` uint8; ``labels`` ``(5 n,)``.
    """

    path: Path
    arrays: Mapping[str, NDArray[Any]]

    def read(self, name: str, severity: int) -> Examples:
        """The images of one corruption and severity, with their labels."""
        corruption = find_corruption(name)
        check_severity(severity)
        images, labels = self.arrays.get(corruption.name), self.arrays[LABELS]
        if images is None:
            raise MissingDataError(
                f"{self.path} must hold {corruption.name}.npy, got {', '.join(sorted(self.arrays))}."
            )
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise damaged(
                self.path, f"{corruption.name}.npy must be uint8 (rows, H, W, 3), got {images.dtype} {images.shape}"
            )
        if len(images) != len(labels) or len(labels) % len(SEVERITIES):
            raise damaged(
                self.path,
                f"{corruption.name}.npy must hold {len(SEVERITIES)} severities of as many rows as labels.npy has for "
                f"each, got {len(images):,} rows and {len(labels):,} labels",
            )
        rows = len(labels) // len(SEVERITIES)
        part = slice((severity - 1) * rows, severity * rows)
        chosen = np.ascontiguousarray(np.asarray(images[part]).transpose(0, 3, 1, 2))
        return Examples(torch.from_numpy(chosen), torch.from_numpy(labels[part].astype(np.int64)))


def find(folder: Path, dataset: str = "cifar10") -> tuple[Path, ...]:
    """The folder or archive of the arrays: extracted before packed."""
    published = PUBLISHED[dataset]
    found = folder if (folder / f"{LABELS}.npy").is_file() else first_found(folder, (published, f"{published}*.tar"))
    if found is None:
        raise missing(f"{dataset}-c", folder, f"the folder {published} or {published}.tar")
    return (found,)


def open_arrays(folder: Path, dataset: str) -> PublishedArrays | None:
    """The published arrays of a dataset, or None if it has none or they are not there."""
    if dataset not in PUBLISHED:
        return None
    try:
        (path,) = find(folder, dataset)
    except MissingDataError:
        return None
    return map_arrays(path)


def map_arrays(path: Path) -> PublishedArrays:
    """Map every array in a folder or an archive."""
    arrays = _in_folder(path) if path.is_dir() else _in_archive(path)
    if LABELS not in arrays:
        raise damaged(path, f"it does not hold {LABELS}.npy")
    if arrays[LABELS].ndim != 1 or arrays[LABELS].dtype.kind not in "iu":
        raise damaged(path, f"{LABELS}.npy must be integers (rows,), got {arrays[LABELS].dtype} {arrays[LABELS].shape}")
    return PublishedArrays(path, arrays)


def load(folder: Path, dataset: str = "cifar10", *, corruption: str = "gaussian_noise", severity: int = 1) -> Dataset:
    """The clean dataset with its test images as one corruption shows them: published where there, else generated.

    Args:
        folder: the data folder.
        dataset: the clean one's name.
        corruption: one of the 19.
        severity: from 1 to 5.
    """
    from metacal.lab.data.registry import load_dataset

    clean = load_dataset(dataset, folder=folder)
    arrays = open_arrays(folder, dataset)
    if arrays is None:
        test = corrupted_examples(clean.test, (corruption, severity))
        return replace(clean, name=f"{dataset}-c", test=test, files=(*clean.files, "generated corruptions"))
    return replace(
        clean, name=f"{dataset}-c", test=arrays.read(corruption, severity), files=(*clean.files, str(arrays.path))
    )


def check(folder: Path, dataset: str = "cifar10") -> None:
    """Read the labels and every corruption that is there, to its end."""
    arrays = map_arrays(find(folder, dataset)[0])
    for name in arrays.arrays:
        if name != LABELS:
            for severity in SEVERITIES:
                arrays.read(name, severity)


def _in_folder(path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for file in sorted(path.glob("*.npy")):
        try:
            arrays[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, *READ_ERRORS) as error:
            raise damaged(file, str(error).rstrip(".")) from None
    return arrays


def _in_archive(path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with tarfile.open(path, "r:") as archive, path.open("rb") as file:
            for member in archive:
                name = PurePosixPath(member.name)
                if member.isreg() and name.suffix == ".npy":
                    arrays[name.stem] = _mapped(path, file, member)
    except (ValueError, *READ_ERRORS) as error:
        if isinstance(error, DamagedFileError):
            raise
        raise damaged(path, str(error).rstrip(".")) from None
    return arrays


def _mapped(path: Path, file: Any, member: tarfile.TarInfo) -> NDArray[Any]:
    """An array inside an archive, mapped where its values are."""
    file.seek(member.offset_data)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    first = file.tell()
    if is_fortran or dtype.hasobject or first - member.offset_data + dtype.itemsize * np.prod(shape) > member.size:
        raise damaged(path, f"{member.name} is not a plain array of its size")
    return np.memmap(path, dtype, "r", first, shape)
