"""CIFAR-10-C and CIFAR-100-C: test images under corruptions, the published arrays if available, else generated.

The published tar file holds an array for each corruption, with its five severities one after another. The arrays are
memory-mapped, in a folder or inside the archive, so that a severity only takes the memory of its own images.
"""

import tarfile
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.errors import MissingDataError
from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES, check_severity, corrupt, find_corruption
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import READ_ERRORS, RemoteFile, Source, damaged
from metacal.lab.data.sources.cifar import CIFAR10, CIFAR100
from metacal.seeding import mixed

TEST = 14
"""Stream number of generated test sets."""


def find_published(folder: Path, dataset: str) -> Path | None:
    """Find the folder or archive with the published arrays of a (clean) dataset; None if there is none."""
    return next(iter(PUBLISHED[dataset].search(folder)), None) if dataset in PUBLISHED else None


def read_published(path: Path, name: str, severity: int) -> Examples:
    """Read the published images of one corruption and severity, with their labels."""
    check_severity(severity)
    name = find_corruption(name)
    images, labels = _map_array(path, name), _map_array(path, "labels")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise damaged(path, f"{name}.npy must be uint8 (rows, H, W, 3), got {images.dtype} {images.shape}")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise damaged(path, f"labels.npy must be integers (rows,), got {labels.dtype} {labels.shape}")
    if len(images) != len(labels) or len(labels) % len(SEVERITIES):
        raise damaged(
            path,
            f"{name}.npy must have as many rows as labels.npy, a multiple of {len(SEVERITIES)} severities, got "
            f"{len(images):,} rows and {len(labels):,} labels",
        )
    rows = len(labels) // len(SEVERITIES)
    part = slice((severity - 1) * rows, severity * rows)
    chosen = np.ascontiguousarray(images[part].transpose(0, 3, 1, 2))
    return Examples(torch.from_numpy(chosen), torch.from_numpy(labels[part].astype(np.int64)))


def _map_array(path: Path, name: str) -> NDArray[Any]:
    """Memory-map an array in a folder or an uncompressed archive."""
    try:
        if path.is_dir():
            places = {file.stem: (file, 0, file.stat().st_size) for file in sorted(path.glob("*.npy"))}
        else:
            with tarfile.open(path, "r:") as archive:
                members = [member for member in archive if member.isreg() and member.name.endswith(".npy")]
            places = {Path(each.name).stem: (path, each.offset_data, each.size) for each in members}
        if name not in places:
            raise MissingDataError(f"{path} must hold {name}.npy, got {', '.join(sorted(places)) or 'none'}.")
        file, start, size = places[name]
        with file.open("rb") as stream:
            stream.seek(start)
            is_first = np.lib.format.read_magic(stream) == (1, 0)
            header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = header(stream)
            values = stream.tell()
        if is_fortran or dtype.hasobject or values - start + dtype.itemsize * np.prod(shape) > size:
            raise ValueError("it is not a plain array of its size")
        return np.memmap(file, dtype, "r", values, shape)
    except MissingDataError:
        raise
    except (ValueError, *READ_ERRORS) as error:
        raise damaged(path, f"{name}.npy: {error}") from None


def corrupted_examples(examples: Examples, name: str, severity: int) -> Examples:
    """Corrupt all examples; the seed is fixed, so that all runs see the same images, as with the published arrays."""
    return replace(examples, inputs=corrupt(examples.inputs, name, severity, seed=mixed(TEST, 0)))


def load(clean: Source, folder: Path, *, corruption: str = "gaussian_noise", severity: int = 1) -> Dataset:
    """Load the clean dataset with its test images under one corruption at a severity from 1 to 5."""
    dataset, published = clean.load(folder), find_published(folder, clean.name)
    read = partial(read_published, published) if published else partial(corrupted_examples, dataset.test)
    files = (*dataset.files, str(published or "generated corruptions"))
    return replace(dataset, name=PUBLISHED[clean.name].name, test=read(corruption, severity), files=files)


def _check(clean: Source, folder: Path) -> None:
    """Read every array completely."""
    (path,) = PUBLISHED[clean.name].find(folder)
    for name, severity in product(CORRUPTIONS, SEVERITIES):
        read_published(path, name, severity)


def _source(clean: Source, published: str, record: int, md5: str) -> Source:
    url = f"https://zenodo.org/records/{record}/files/{published}.tar"
    return Source(
        f"{clean.name}-c",
        f"{published.removesuffix('-C')}'s test images under 19 corruptions at 5 severities",
        partial(load, clean),
        ((published, f"{published}*.tar"),),
        f"the folder {published} or {published}.tar",
        (RemoteFile(f"{published}.tar", url, f"md5:{md5}", 2918),),
        clean.shape,
        partial(_check, clean),
        "published arrays if available, else generated",
    )


CIFAR10_C = _source(CIFAR10, "CIFAR-10-C", 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499")
CIFAR100_C = _source(CIFAR100, "CIFAR-100-C", 3555552, "11f0ed0f1191edbf9fa23466ae6021d3")
PUBLISHED = {CIFAR10.name: CIFAR10_C, CIFAR100.name: CIFAR100_C}
