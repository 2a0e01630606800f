"""Fashion-MNIST in the idx format, compressed or not."""

import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import RemoteFile, Shape, Source, damaged, read_bytes

CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SUBFOLDERS = ("fashion-mnist", "FashionMNIST/raw")
DEBIAN = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package dataset-fashion-mnist puts it."""
MEAN, STD = (0.2860,), (0.3530,)


def load(folder: Path, *, augment: bool = False) -> Dataset:
    """60,000 training and 10,000 test images ``(1, 28, 28)``; ``augment`` pads, crops and flips in training."""
    files = FASHION_MNIST.find(folder)
    train, test = (_examples(images, labels) for images, labels in (files[:2], files[2:]))
    paths = tuple(map(str, files))
    return Dataset(FASHION_MNIST.name, "image", train, test, CLASSES, mean=MEAN, std=STD, augment=augment, files=paths)


def read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """Read a byte array in idx format: two zeros, the type (8), the number of dimensions, their sizes, the values."""
    content = read_bytes(path)
    start = 4 + 4 * ndim
    if len(content) < start or content[:4] != bytes((0, 0, 8, ndim)):
        raise damaged(path, f"it does not start like an idx file of bytes with {ndim} dimensions")
    shape = struct.unpack(f">{ndim}I", content[4:start])
    wanted = int(np.prod(shape, dtype=np.int64))
    if len(content) - start != wanted:
        raise damaged(path, f"it must hold {wanted:,} values according to its header, got {len(content) - start:,}")
    values: NDArray[np.uint8] = np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
    return values


def _examples(images_file: Path, labels_file: Path) -> Examples:
    images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
    if len(images) != len(labels) or not len(labels):
        raise damaged(labels_file, f"it must hold a label for each of {len(images):,} images, got {len(labels):,}")
    if labels.max() >= len(CLASSES):
        raise damaged(labels_file, f"labels must lie in 0..{len(CLASSES) - 1}, got {labels.max()}")
    return Examples(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


def in_places(*places: str) -> tuple[tuple[str, ...], ...]:
    """Patterns of the four files, compressed or not; only the folder tells them from MNIST's."""
    return tuple(tuple(f"{place}/{stem}{end}" for place in places for end in ("", ".gz")) for stem in STEMS)


def _remote(stem: str, md5: str, megabytes: float, debian: str) -> RemoteFile:
    """A file with its hash, and its hash in Debian's package, where the same bytes are compressed differently."""
    url = f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{stem}.gz"
    return RemoteFile(f"fashion-mnist/{stem}.gz", url, f"md5:{md5}", megabytes, (f"md5:{debian}",))


FASHION_MNIST = Source(
    "fashion-mnist",
    "70,000 grey images of clothes, 28 x 28, 10 classes",
    load,
    in_places(*SUBFOLDERS, DEBIAN),
    f"{STEMS[0]}[.gz] with the other three files in {' or '.join(SUBFOLDERS)} (or {DEBIAN})",
    (
        _remote(STEMS[0], "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26.4, "cf8536b0aa1a6ac5fa3f23001093305c"),
        _remote(STEMS[1], "25c81989df183df01b3e8a0aad5dffbe", 0.03, "10bea18fdb374794d4bb42e356e600c9"),
        _remote(STEMS[2], "bef4ecab320f06d8554ea6380940ec79", 4.4, "f78720b4224f21cce2f2ccf2d7a94c9a"),
        _remote(STEMS[3], "bb300cfdad3c16e7a12a480ee83cd310", 0.005, "0d30e22e447f3c33dab9ed536400ac01"),
    ),
    Shape(60_000, (1, 28, 28), 10),
)
