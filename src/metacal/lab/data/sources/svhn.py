"""SVHN (cropped digits), and a reader of its MATLAB files (level 5, little-endian).

The reader is our own because SciPy's trusts the sizes in the file: a damaged file can crash the process.
"""

import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import MOST_BYTES, RemoteFile, Shape, Source, damaged
from metacal.lab.data.sources.cifar import MEAN, STD

STANFORD = "http://ufldl.stanford.edu/housenumbers"
MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC = range(6, 16)  # classes of arrays that hold plain numbers: not cells, structures, text or sparse matrices
COMPLEX = 0x08


def load(folder: Path) -> Dataset:
    """73,257 training and 26,032 test images; as published, without augmentation and scaled like CIFAR-10."""
    files = SVHN.find(folder)
    train, test = (read_mat(path) for path in files)
    digits = tuple(map(str, range(10)))
    return Dataset(SVHN.name, "image", train, test, digits, mean=MEAN, std=STD, files=tuple(map(str, files)))


def read_mat(path: Path) -> Examples:
    """Read the images ``X`` (32, 32, 3, n) and labels ``y`` (n, 1), 1..10, of one file."""
    arrays = read_arrays(path, ("X", "y"))
    if len(arrays) < 2:
        raise damaged(path, "it must hold numeric arrays X and y")
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)) or not len(labels):
        got = f"{images.dtype} {images.shape} for {len(labels)}"
        raise damaged(path, f"X must be uint8 (32, 32, 3, n) for n >= 1 labels, got {got}")
    is_digit = np.isin(labels, np.arange(1, 11))
    if not is_digit.all():
        raise damaged(path, f"labels must be the numbers 1..10, got {labels[~is_digit][0]}")
    pixels = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
    return Examples(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read the real numeric arrays with these names, in the data type that they are stored in."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        content = memoryview(path.read_bytes())
        if bytes(content[124:128]) != b"\x00\x01IM":
            raise ValueError("wrong header; MATLAB writes this format with -v7")
        rest = content[128:]
        while rest:
            kind, data, rest = _read_element(rest)
            if kind == COMPRESSED:
                stream = zlib.decompressobj()
                kind, data, _ = _read_element(memoryview(stream.decompress(data, MOST_BYTES)))
                if not stream.eof:
                    raise ValueError("its compressed data is truncated or too large")
            if kind != MATRIX:
                raise ValueError(f"a matrix must follow, got data type {kind}")
            arrays |= _read_matrix(data, names)
    except (ValueError, OSError, MemoryError, zlib.error) as error:
        raise damaged(path, f"it cannot be read as a MATLAB 5 file ({str(error) or type(error).__name__})") from None
    return arrays


def _read_element(content: memoryview) -> tuple[int, memoryview, memoryview]:
    """Return data type and data of the first element, and the rest."""
    if len(content) < 8:
        raise ValueError("it ends within a tag")
    kind, length = struct.unpack("<2I", content[:8])
    if kind >> 16:  # up to 4 bytes of data are in the tag itself
        return kind & 0xFFFF, content[4:8][: kind >> 16], content[8:]
    if 8 + length > len(content):
        raise ValueError(f"it ends {8 + length - len(content):,} bytes too early")
    padding = 0 if kind == COMPRESSED else -length % 8
    return kind, content[8 : 8 + length], content[8 + length + padding :]


def _read_matrix(content: memoryview, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Return a numeric matrix by its name; nothing if it has another name or type."""
    _, flags, content = _read_element(content)
    _, sizes, content = _read_element(content)
    _, letters, content = _read_element(content)
    name = letters.tobytes().decode("latin-1")
    if name not in names or len(flags) < 2 or flags[0] not in NUMERIC:
        return {}
    if flags[1] & COMPLEX:
        raise ValueError(f"{name} must be real, got complex numbers")
    kind, numbers, _ = _read_element(content)
    if kind not in STORED:
        raise ValueError(f"numbers must follow, got data type {kind}")
    shape = np.frombuffer(sizes, "<i4").tolist()
    return {name: np.frombuffer(numbers, f"<{STORED[kind]}").reshape(shape, order="F")}


SVHN = Source(
    "svhn",
    "99,289 house numbers in colour, 32 x 32, 10 classes",
    load,
    tuple(
        (f"{name}.mat", f"svhn/{name}.mat", f"svhn_{name}*.mat", f"{name}*.mat")
        for name in ("train_32x32", "test_32x32")
    ),
    "train_32x32.mat, svhn/train_32x32.mat or svhn_train_32x32*.mat, and the same for test_32x32",
    (
        RemoteFile("train_32x32.mat", f"{STANFORD}/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182),
        RemoteFile("test_32x32.mat", f"{STANFORD}/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64),
    ),
    Shape(73_257, (3, 32, 32), 10),
)
