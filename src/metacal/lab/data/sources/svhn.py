"""SVHN, cropped digits, in the official ``.mat`` layout, and a reader of MATLAB files of level 5.

The reader is our own because SciPy's trusts the sizes that a file states: a damaged file can end the process. Here
every size is checked before memory is taken. The format is MathWorks' "MAT-File Format"; files of level 4 and of 7.3
(HDF5) are refused.
"""

import math
import os
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import RemoteFile, Shape, Source, damaged, first_found
from metacal.lab.data.sources.cifar import MEAN, STD

STANFORD = "http://ufldl.stanford.edu/housenumbers"
MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Data types by number."""
NUMERIC = range(6, 16)
"""Classes of arrays that hold plain numbers: not cells, structures, objects, text or sparse matrices."""
COMPLEX = 0x800
MOST_INFLATED = 1032
"""What a byte of zlib can become at most."""
CHUNK = 2**18


def load(folder: Path) -> Dataset:
    """73,257 training and 26,032 test images, label 10 read as digit 0.

    As published: no augmentation, and scaled by the mean and standard deviation of CIFAR-10.
    """
    files = SVHN.find(folder)
    train, test = (read_mat(path) for path in files)
    digits = tuple(map(str, range(10)))
    return Dataset(SVHN.name, "image", train, test, digits, mean=MEAN, std=STD, files=tuple(map(str, files)))


def read_mat(path: Path) -> Examples:
    """Images ``X`` (32, 32, 3, n) and labels ``y`` (n, 1), 1..10, of one file."""
    arrays = read_arrays(path, ("X", "y"))
    if len(arrays) < 2:
        raise damaged(path, "it must hold the arrays X and y of numbers")
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)) or not len(labels):
        got = f"{images.dtype} {images.shape} for {len(labels)}"
        raise damaged(path, f"X must be uint8 (32, 32, 3, n) for n >= 1 labels, got {got}")
    is_digit = np.isin(labels, np.arange(1, 11))
    if not is_digit.all():
        raise damaged(path, f"labels must be the numbers 1..10, got {labels[~is_digit][0]}")
    pixels = images.transpose(3, 2, 1, 0)  # as they lie in memory; columns go before rows
    for start in range(0, len(pixels), 1024):
        pixels[start : start + 1024] = pixels[start : start + 1024].swapaxes(2, 3)
    return Examples(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The real numeric arrays of these names that a file holds, in the data type that they are stored in.

    Raises:
        DamagedFileError: if it is not a file of level 5, or is damaged.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with path.open("rb") as file:
            order, size = _byte_order(file.read(128)), os.fstat(file.fileno()).st_size
            while file.tell() < size:
                kind, length = _read_tag(file.read(8), order)
                end = file.tell() + length
                if end > size:
                    raise ValueError(f"it ends {end - size:,} bytes too early")
                if kind == COMPRESSED:
                    content, first = _inflate(file, end, order), 8
                    kind, length = _read_tag(content, order)
                else:
                    content, first = bytearray(file.read(length)), 0
                if kind != MATRIX:
                    raise ValueError(f"a matrix must follow, got data type {kind}")
                if len(content) < first + length:
                    raise ValueError("it ends within an array")
                name, array = _read_matrix(memoryview(content)[first : first + length], order, names)
                if name in arrays:
                    raise ValueError(f"it holds {name} twice")
                if array is not None:
                    arrays[name] = array
                    if len(content) > first + length:
                        raise ValueError(f"bytes follow {name} in its compressed data")
                file.seek(end)
    except (ValueError, OSError, MemoryError, zlib.error) as error:
        raise damaged(path, f"it cannot be read as a MATLAB 5 file ({str(error) or type(error).__name__})") from None
    return arrays


def _byte_order(header: bytes) -> str:
    """The prefix of `struct` and NumPy for the byte order that a header of 128 bytes states."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if order is None:
        raise ValueError("it does not start as one")
    (version,) = struct.unpack(f"{order}H", header[124:126])
    if version != 0x0100:
        raise ValueError(f"it has version {version:#06x}; save it again in MATLAB with -v7")
    return order


def _read_tag(content: bytes | bytearray, order: str) -> tuple[int, int]:
    """Data type and length of the element that follows."""
    if len(content) < 8:
        raise ValueError("it ends within a tag")
    kind, length = struct.unpack_from(f"{order}2I", content)
    return kind, length


def _inflate(file: BinaryIO, end: int, order: str) -> bytearray:
    """An element, its tag included, from its compressed form that ends at a place in the file; a little at a time."""
    stream, content, size = zlib.decompressobj(), bytearray(), 8
    most = MOST_INFLATED * (end - file.tell())
    while not stream.eof and len(content) <= size:  # goes on behind the element, where the checksum is
        waiting = stream.unconsumed_tail or file.read(min(CHUNK, end - file.tell()))
        part = stream.decompress(waiting, CHUNK)
        if not part and not waiting and not stream.eof:
            raise ValueError("its compressed data end too early")
        content += part
        if size == 8 and len(content) >= 8:
            size += _read_tag(content, order)[1]
            if size - 8 > most:
                raise ValueError(f"{size - 8:,} bytes are said to be in {most // MOST_INFLATED:,} compressed ones")
    return content


def _read_matrix(content: memoryview, order: str, names: Collection[str]) -> tuple[str, NDArray[Any] | None]:
    """The name of a matrix, and its numbers if it is one of these names; no name if it is not of numbers."""
    flags, content = _read_element(content, order, "u4")
    if len(flags) != 2:
        raise ValueError(f"a matrix must have 2 flags, got {len(flags)}")
    if int(flags[0]) & 0xFF not in NUMERIC:
        return "", None
    sizes, content = _read_element(content, order, "i4")
    letters, content = _read_element(content, order, "i1")
    shape, name = tuple(sizes.tolist()), letters.tobytes().decode("latin-1")
    if name not in names:
        return name, None
    if int(flags[0]) & COMPLEX:
        raise ValueError(f"{name} must be real, got complex numbers")
    numbers, content = _read_element(content, order)
    if min(shape, default=-1) < 0 or math.prod(shape) != len(numbers):
        raise ValueError(f"{name} is said to have the shape {shape}, got {len(numbers):,} numbers")
    if len(content):
        raise ValueError(f"{len(content):,} bytes follow the numbers of {name}")
    return name, numbers.reshape(shape, order="F")


def _read_element(content: memoryview, order: str, wanted: str = "") -> tuple[NDArray[Any], memoryview]:
    """The numbers of the first element, which is of a wanted type if there is one, and what follows it."""
    word, length = struct.unpack(f"{order}2I", bytes(content[:8]).ljust(8, b"\0"))
    start, room = 8, -(-length // 8) * 8
    if word >> 16:  # up to 4 bytes stand in the tag itself
        start, length, room = 4, word >> 16, 4
    if len(content) < start:
        raise ValueError("it ends within an array")
    dtype = STORED.get(word & 0xFFFF)
    if dtype is None or dtype != (wanted or dtype):
        raise ValueError(f"numbers must follow, got data type {word & 0xFFFF}")
    room = min(room, len(content) - start)  # the last element may lack padding
    if length > room or length % int(dtype[1]):
        raise ValueError(f"an element of {length:,} bytes of type {dtype} must fit into {room:,}")
    return np.asarray(content[start : start + length]).view(order + dtype), content[start + room :]


def _search(folder: Path) -> tuple[Path, ...]:
    """The training and the test file; complete ones before any other edition."""
    found = [
        first_found(folder, f"{name}.mat", f"svhn/{name}.mat", f"svhn_{name}*.mat", f"{name}*.mat")
        for name in ("train_32x32", "test_32x32")
    ]
    return tuple(path for path in found if path is not None) if None not in found else ()


SVHN = Source(
    "svhn",
    "99,289 house numbers in colour, 32 x 32, 10 classes",
    load,
    _search,
    "train_32x32.mat, svhn/train_32x32.mat or svhn_train_32x32*.mat with its companion test_32x32",
    (
        RemoteFile("train_32x32.mat", f"{STANFORD}/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182),
        RemoteFile("test_32x32.mat", f"{STANFORD}/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64),
    ),
    Shape(73_257, (3, 32, 32), 10),
)
