"""Numeric arrays of MATLAB files of level 5, as MathWorks documents them ("MAT-File Format").

SciPy's reader does the same and more, but it trusts the sizes that a file states: a damaged file can end the process.
Here every size is checked before memory is taken. Files of level 4 and 7.3 (HDF5) are refused.
"""

import io
import math
import os
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from metacal.lab.data.files import damaged

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Data types by number."""
NUMERIC = range(6, 16)
"""Classes of arrays that hold plain numbers: not cells, structures, objects, text or sparse matrices."""
COMPLEX = 0x800
MOST_INFLATED = 1032
"""What a byte of zlib can become at most."""
CHUNK = 2**18


def read_arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The real numeric arrays of these names that a file holds, in the data type that they are stored in.

    Raises:
        DamagedFileError: if it is not a file of level 5, or is damaged.
    """
    try:
        with path.open("rb") as file:
            order = _byte_order(file.read(128))
            size, arrays = os.fstat(file.fileno()).st_size, {}
            while file.tell() < size:
                kind, length = _read_tag(file, order)
                end = file.tell() + length
                if end > size:
                    raise ValueError(f"it ends {end - size:,} bytes too early")
                stream: BinaryIO = file
                if kind == COMPRESSED:
                    stream, most = io.BufferedReader(_Inflated(file, length), CHUNK), MOST_INFLATED * length
                    kind, length = _read_tag(stream, order)
                    if length > most:
                        raise ValueError(
                            f"{length:,} bytes are said to be in {most // MOST_INFLATED:,} compressed ones"
                        )
                if kind != MATRIX:
                    raise ValueError(f"a matrix must follow, got data type {kind}")
                name, array = _Matrix(stream, order, length).read(names)
                if name in arrays:
                    raise ValueError(f"it holds {name} twice")
                if array is not None:
                    arrays[name] = array
                    if stream is not file and stream.read(1):  # reads the checksum too
                        raise ValueError(f"bytes follow {name} in its compressed data")
                file.seek(end)
            return arrays
    except (ValueError, OSError, MemoryError, zlib.error) as error:
        raise damaged(path, f"it cannot be read as a MATLAB 5 file ({str(error) or type(error).__name__})") from None


def _byte_order(header: bytes) -> str:
    """The prefix of `struct` and NumPy for the byte order that a header of 128 bytes states."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if order is None:
        raise ValueError("it does not start as one")
    (version,) = struct.unpack(f"{order}H", header[124:126])
    if version != 0x0100:
        raise ValueError(f"it has version {version:#06x}; save it again in MATLAB with -v7")
    return order


def _read_tag(stream: BinaryIO, order: str) -> tuple[int, int]:
    """Data type and length of the element that follows."""
    tag = stream.read(8)
    if len(tag) < 8:
        raise ValueError("it ends within a tag")
    kind, length = struct.unpack(f"{order}2I", tag)
    return kind, length


class _Matrix:
    """A matrix of so many bytes at the start of a stream: elements of flags, dimensions, name and numbers."""

    def __init__(self, stream: BinaryIO, order: str, length: int) -> None:
        self.stream, self.order, self.left = stream, order, length

    def read(self, names: Collection[str]) -> tuple[str, NDArray[Any] | None]:
        """Its name, and its numbers if it is one of these names; no name if it is not of numbers."""
        flags = self.element("u4")
        if len(flags) != 2:
            raise ValueError(f"a matrix must have 2 flags, got {len(flags)}")
        if int(flags[0]) & 0xFF not in NUMERIC:
            return "", None
        shape, name = self.element("i4").tolist(), self.element("i1").tobytes().decode("latin-1")
        if name not in names:
            return name, None
        if int(flags[0]) & COMPLEX:
            raise ValueError(f"{name} must be real, got complex numbers")
        numbers = self.element()
        if min(shape, default=-1) < 0 or math.prod(shape) != len(numbers):
            raise ValueError(f"{name} is said to have the shape {tuple(shape)}, got {len(numbers):,} numbers")
        if self.left:
            raise ValueError(f"{self.left:,} bytes follow the numbers of {name}")
        return name, numbers.reshape(shape, order="F")

    def element(self, wanted: str | None = None) -> NDArray[Any]:
        """The numbers of the next element, which is of a wanted type."""
        (word,) = struct.unpack(f"{self.order}I", self.take(4))
        kind, length, room = word & 0xFFFF, word >> 16, 4  # up to 4 bytes stand in the tag itself
        if not length:
            (length,) = struct.unpack(f"{self.order}I", self.take(4))
            room = -(-length // 8) * 8
        dtype = STORED.get(kind)
        if dtype is None or dtype != (wanted or dtype):
            raise ValueError(f"numbers must follow, got data type {kind}")
        if length > min(room, self.left) or length % int(dtype[1]):
            raise ValueError(f"an element of {length:,} bytes of type {dtype} must fit into {min(room, self.left):,}")
        numbers = np.empty(length, np.uint8)
        if self.stream.readinto(numbers) < length:  # type: ignore[attr-defined]
            raise ValueError("it ends within an array")
        self.left -= length
        self.take(min(room - length, self.left))  # padding, which the last element may lack
        return numbers.view(self.order + dtype)

    def take(self, length: int) -> bytes:
        """So many bytes of it."""
        taken = self.stream.read(min(length, self.left))
        if len(taken) < length:
            raise ValueError("it ends within an array")
        self.left -= length
        return taken


class _Inflated(io.RawIOBase):
    """What the next bytes of a file, so many, hold as a zlib stream; a little of it in memory at a time."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self.file, self.left, self.waiting = file, length, b""
        self.zlib = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.zlib.eof:
            if not self.waiting:
                self.waiting = self.file.read(min(self.left, CHUNK))
                self.left -= len(self.waiting)
            is_last = not self.waiting
            part = self.zlib.decompress(self.waiting, min(len(buffer), CHUNK))
            self.waiting = self.zlib.unconsumed_tail
            if part:
                buffer[: len(part)] = part
                return len(part)
            if is_last:
                raise ValueError("its compressed data end too early")
        return 0
