"""Mutations that know a format: what bytes alone would never get past a header, a checksum or a parser.

Each takes the bytes of a file and a source of random numbers, and gives other bytes of the same format.
"""

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Mutation = Callable[[bytes, Random], bytes]

NUMBERS = (0, 1, -1, 2, 0.5, 1.5, -0.0, 1e-320, 1e308, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, float("nan"))
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    float("inf"),
    None,
    True,
    False,
    "",
    "0",
    "nan",
    "cat",
    "\x1b[31m",
    "\ud800",
    [],
    {},
    [[]],
    [0.5, 0.5],
)
NAMES = (
    "p_0",
    "p_1",
    "p_cat",
    "p_dog",
    "prob_01",
    "probs",
    "logits",
    "logit_a",
    "label",
    "target",
    "y",
    "p",
    "",
    "p_.x",
)
SHAPES = ((), (0,), (3,), (3, 2), (2, 3), (3, 1), (0, 2), (2, 0), (1, 2, 3), (10**13,), (2**31, 2), (2**62, 2), (-1, 2))
DTYPES = (
    "<f8",
    "<f4",
    "<f2",
    ">f8",
    "<i8",
    "<u8",
    "|b1",
    "|u1",
    "<c16",
    "<U3",
    "|S2",
    "<M8[ns]",
    "|O",
    "<f16",
    "|V4",
    "<U0",
)


def any_value(random: Random) -> Any:
    return random.choice(VALUES)


def change_json(value: Any, random: Random) -> Any:
    """The same value with one node replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        deed = random.random()
        if deed < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if deed < 0.2:
            return {(random.choice(NAMES) if name == key else name): item for name, item in value.items()}
        if deed < 0.25:
            return {**value, random.choice(NAMES): any_value(random)}
        return {**value, key: change_json(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        deed = random.random()
        if deed < 0.1:
            return value[:place] + value[place + 1 :]
        if deed < 0.2:
            return [*value[:place], value[place], *value[place:]]
        return [*value[:place], change_json(value[place], random), *value[place + 1 :]]
    if isinstance(value, str) and value[:1] == "{" and random.random() < 0.9:  # JSON inside JSON: safetensors' metadata
        return json.dumps(change_json(json.loads(value), random))
    if random.random() < 0.03:
        return _nested(random.choice((50, 2000, 200_000)))
    return any_value(random)


class _nested:  # noqa: N801 (a value that json writes by itself)
    """So many lists in each other, which `json.dumps` itself could not write."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


def dump_json(value: Any) -> str:
    found: list[int] = []

    def mark(item: Any) -> str:
        found.append(item.depth)
        return "__nested__"

    text = json.dumps(value, default=mark)
    for depth in found:
        text = text.replace('"__nested__"', "[" * depth + "]" * depth, 1)
    return text


def json_file(data: bytes, random: Random) -> bytes:
    return dump_json(change_json(json.loads(data), random)).encode("utf-8", "surrogatepass")


def json_lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    if random.random() < 0.1:
        return b"\n".join([*lines[:place], lines[place], *lines[place:]])
    lines[place] = json_file(lines[place] or b"{}", random)
    return b"\n".join(lines)


def separated(data: bytes, random: Random) -> bytes:
    """CSV: a cell, a name, a line or the separator."""
    cells = [line.split(b",") for line in data.split(b"\n")]
    deed = random.random()
    if deed < 0.1:
        return data.replace(b",", random.choice((b";", b"\t", b"|", b",,", b'"')))
    row = 0 if deed < 0.3 else random.randrange(len(cells))
    place = random.randrange(len(cells[row]))
    fresh = (
        random.choice(NAMES) if row == 0 else random.choice((str(any_value(random)), "0,5", '"', '"a\nb"', " 1 ", "NA"))
    )
    cells[row][place] = fresh.encode("utf-8", "replace")
    return b"\n".join(b",".join(line) for line in cells)


def npy(data: bytes, random: Random) -> bytes:
    """The header's shape, order or dtype, with its length put right; the values stay."""
    length = struct.unpack("<H", data[8:10])[0]
    header, values = eval(data[10 : 10 + length].decode("latin-1"), {}), data[10 + length :]
    deed = random.random()
    if deed < 0.4:
        header["shape"] = random.choice(SHAPES)
    elif deed < 0.8:
        header["descr"] = random.choice(DTYPES)
    elif deed < 0.85:
        header["fortran_order"] = any_value(random)
    elif deed < 0.9:
        values = values * 2
    else:
        header[random.choice(("shape", "descr", "other"))] = any_value(random)
    text = repr(header).encode("latin-1", "replace") + b"\n"
    return data[:8] + struct.pack("<H", len(text)) + text + values


def zipped(inner: Mutation, rate: float = 0.7) -> Mutation:
    """Change one member of a zip archive, or its name."""

    def mutate(data: bytes, random: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        place = random.randrange(len(members))
        name, content = members[place]
        if random.random() < rate:
            content = inner(content, random)
        else:
            name = random.choice(
                ("probs.npy", "logits.npy", "targets.npy", "class_names.npy", "x", "", "a/b.npy", name)
            )
        members[place] = (name, content)
        if random.random() < 0.1:
            members.append(members[random.randrange(len(members))])
        buffer = io.BytesIO()
        method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, content in members:
                archive.writestr(name, content)
        return buffer.getvalue()

    return mutate


def some_bytes(data: bytes, random: Random) -> bytes:
    """A few bytes replaced, removed or put in: for the inside of what has a checksum."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(changed) + 1)
        deed = random.random()
        if deed < 0.5 and place < len(changed):
            changed[place] = random.randrange(256)
        elif deed < 0.7:
            del changed[place : place + random.choice((1, 4, 64))]
        else:
            changed[place:place] = bytes(random.randrange(256) for _ in range(random.choice((1, 4))))
    return bytes(changed)


def mat(data: bytes, random: Random) -> bytes:
    """A file of MATLAB 5: the bytes of an array before they are compressed, most often those before its numbers."""
    arrays, place = [], 128
    while place < len(data):
        kind, length = struct.unpack("<2I", data[place : place + 8])
        content = data[place : place + 8 + length]
        arrays.append(zlib.decompress(content[8:]) if kind == 15 else content)
        place += 8 + length
    chosen = random.randrange(len(arrays))
    head = arrays[chosen][:64] if random.random() < 0.8 else arrays[chosen]
    arrays[chosen] = some_bytes(head, random) + arrays[chosen][len(head) :]
    if random.random() < 0.5:
        return data[:128] + b"".join(arrays)
    squeezed = [zlib.compress(array, 1) for array in arrays]
    return data[:128] + b"".join(struct.pack("<2I", 15, len(each)) + each for each in squeezed)


def safetensors(data: bytes, random: Random) -> bytes:
    """The header's JSON, with its length put right, or the values."""
    length = struct.unpack("<Q", data[:8])[0]
    header, values = data[8 : 8 + length], data[8 + length :]
    if random.random() < 0.3:
        numbers = np.frombuffer(values[: len(values) // 8 * 8], np.float64).copy()
        if len(numbers):
            wanted = [float(number) for number in NUMBERS if abs(number) < 1e309 or number != number]
            numbers[random.randrange(len(numbers))] = random.choice(wanted)
        values = numbers.tobytes() + values[len(numbers) * 8 :]
    else:
        header = json_file(header, random)
    return struct.pack("<Q", len(header)) + header + values


def checkpoint(data: bytes, random: Random) -> bytes:
    """What is behind the hash, with a hash that fits."""
    from metacal.lab.training.checkpoints import DIGEST, MARK

    payload = data[len(MARK) + DIGEST :]
    inside = some_bytes if random.random() < 0.3 else zipped(some_bytes, 1.0)
    payload = inside(payload, random)
    return MARK + hashlib.sha256(payload).digest() + payload
