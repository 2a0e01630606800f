"""SVHN; arrays of MATLAB files are those that SciPy reads, and no damage gets further than a DamagedFileError."""

import struct
import zlib

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat
from tests.lab.data import files

from metacal.errors import DamagedFileError
from metacal.lab.data import load_dataset
from metacal.lab.data.sources.svhn import read_arrays

NUMBERS = np.random.default_rng(0).integers(0, 100, (2, 3, 4))
KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8")


def element(order, kind, data, small=False):
    if small:
        return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(f"{order}2I", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(order="<", name=b"y", shape=(2, 1), flags=9, kind=2, data=b"\x03\x07", small=True, more=b""):
    """A matrix of uint8, unless told otherwise."""
    parts = [
        element(order, 6, struct.pack(f"{order}2I", flags, 0)),
        element(order, 5, struct.pack(f"{order}{len(shape)}i", *shape)),
        element(order, 1, name, small=len(name) <= 4),
        element(order, kind, data, small=small),
    ]
    return element(order, 14, b"".join(parts) + more)


def packed(content, order="<"):
    squeezed = zlib.compress(content)
    return struct.pack(f"{order}2I", 15, len(squeezed)) + squeezed


def header(order="<", version=0x0100):
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", version) + (b"IM" if order == "<" else b"MI")


def write(path, *matrices, order="<"):
    path.write_bytes(header(order) + b"".join(matrices))
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compress", [False, True])
def test_what_scipy_writes_is_read_as_scipy_reads_it(tmp_path, kind, compress):
    path = tmp_path / "a.mat"
    arrays = {"X": NUMBERS.astype(kind), "y": NUMBERS[0, :1].astype(kind), "one": np.ones((1, 1), kind)}
    others = {"text": "abc", "cell": np.array([1, "b"], object), "structure": {"a": 1}, "unread": np.zeros((9, 9))}
    savemat(path, {**others, **arrays, "empty": np.zeros((0, 3), kind)}, do_compression=compress)
    found, wanted = read_arrays(path, ("X", "y", "one", "empty", "text", "cell", "nothing")), loadmat(path)
    assert sorted(found) == ["X", "empty", "one", "y"]
    for name, array in found.items():
        np.testing.assert_array_equal(array, wanted[name], strict=True)
        assert array.flags.f_contiguous


@pytest.mark.parametrize("compress", [False, True])
def test_numbers_stored_as_smaller_ones(tmp_path, compress):
    """MATLAB stores doubles that are small whole numbers as bytes, and up to 4 bytes inside the tag."""
    squares = struct.pack("<3h", 1, -4, 900)
    matrices = [
        matrix(name=b"y", flags=6),
        matrix(name=b"squares", shape=(1, 3), flags=10, kind=3, data=squares, small=False),
    ]
    path = write(tmp_path / "a.mat", *(packed(each) if compress else each for each in matrices))
    found, wanted = read_arrays(path, ("y", "squares")), loadmat(path)
    assert found["y"].tolist() == [[3], [7]]
    assert found["y"].dtype == np.uint8
    assert found["squares"].tolist() == [[1, -4, 900]]
    for name in found:
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "wrong header"),
        (b"<html>404</html>" * 20, "wrong header"),
        (header(version=0x0200), "wrong header; MATLAB writes this format with -v7"),
        (header(">") + matrix(">"), "wrong header"),
        (header() + matrix()[:-8], "it ends 8 bytes too early"),
        (header() + matrix() + b"\0" * 5, "it ends within a tag"),
        (header() + element("<", 9, bytes(8)), "a matrix must follow, got data type 9"),
        (header() + packed(element("<", 9, bytes(8))), "a matrix must follow, got data type 9"),
        (header() + packed(matrix())[:-6] + bytes(6), "incorrect data check"),
        (header() + packed(b"abc"), "it ends within a tag"),
        (header() + packed(matrix()[:-8]), "it ends 8 bytes too early"),
        (header() + packed(struct.pack("<2I", 14, 2**32 - 1)), "it ends 4,294,967,295 bytes too early"),
        (header() + matrix(kind=88), "numbers must follow, got data type 88"),  # SciPy ends the process here
        (header() + matrix(kind=0), "numbers must follow, got data type 0"),
        (header() + matrix(kind=4, data=b"abc"), "buffer size must be a multiple of element size"),
        (header() + matrix(shape=(3, 1)), r"cannot reshape array of size 2 into shape \(3,1\)"),
        (header() + matrix(shape=(-1, -2)), "can only specify one unknown dimension"),
        (header() + matrix(shape=()), "cannot reshape array of size 2"),
        (header() + matrix(shape=(2**31 - 1,) * 9), "array of size 2"),
        (header() + matrix(shape=(1,) * 99 + (2,)), r"maximum supported dimension"),
        (header() + matrix(flags=9 | 0x800, more=bytes(8)), "y must be real, got complex numbers"),
        (header() + element("<", 14, b""), "it ends within a tag"),
        (header() + element("<", 14, struct.pack("<2I", 6, 2**32 - 8)), "it ends 4,294,967,288 bytes too early"),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    path = tmp_path / "a.mat"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"a.mat is damaged: it cannot be read as a MATLAB 5 file.*{message}"):
        read_arrays(path, ("y",))


def test_compressed_data_that_end_too_early(tmp_path):
    squeezed = zlib.compress(matrix())[:-5]
    path = write(tmp_path / "a.mat", struct.pack("<2I", 15, len(squeezed)) + squeezed)
    with pytest.raises(DamagedFileError, match="its compressed data is truncated"):
        read_arrays(path, ("y",))


@pytest.mark.parametrize("compress", [False, True])
def test_no_byte_can_do_harm(tmp_path, compress):
    """Every prefix of a file is refused; with a byte changed, it is refused or gives arrays."""
    first, second = (packed(each) if compress else each for each in (matrix(name=b"Xy", flags=6), matrix(flags=6)))
    path = write(tmp_path / "a.mat", first, second)
    whole = path.read_bytes()
    refused = 0
    for place in range(124, len(whole)):
        for value in {0, 0xFF, whole[place] ^ 1, whole[place] ^ 0x80}:
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                found = read_arrays(path, ("Xy", "y"))
                assert not compress or all(array.tolist() == [[3], [7]] for array in found.values()), place
            except DamagedFileError:
                refused += 1
        if place not in (128, 128 + len(first)):  # where an array ends, a file may end
            path.write_bytes(whole[:place])
            with pytest.raises(DamagedFileError):
                read_arrays(path, ("Xy", "y"))
    assert refused > len(whole) - 124


@pytest.mark.data
def test_real_files_are_read_as_scipy_reads_them(data_folder):
    for part in ("train", "test"):
        path = data_folder / f"svhn_{part}_32x32.subset.mat"
        found, wanted = read_arrays(path, ("X", "y")), loadmat(path)
        for name in ("X", "y"):
            np.testing.assert_array_equal(found[name], wanted[name], strict=True)


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("svhn_", ".subset")])
def test_svhn(tmp_path, prefix, suffix):
    files.write_svhn(tmp_path, prefix, suffix)
    data = load_dataset("svhn", folder=tmp_path)
    assert data.train.targets.tolist() == [0, 1, 2, 9]
    assert data.input_shape == (3, 32, 32)
    assert not data.augment
    images = loadmat(data.files[0])["X"]
    assert np.array_equal(data.train.inputs[2].numpy(), images[:, :, :, 2].transpose(2, 0, 1))


def test_damaged_svhn(tmp_path):
    files.write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"rubbish" * 100, whole[:200]):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"train_32x32.mat is damaged: .*expected md5:e26dedcc"):
            load_dataset("svhn", folder=tmp_path)
    for arrays, message in (
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "must hold numeric arrays X and y"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[0], [1]]}, "labels must be the numbers 1..10, got 0"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [np.nan]]}, "labels must be .* 1..10, got nan"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [2.5]]}, "labels must be the numbers 1..10, got 2.5"),
        ({"X": np.zeros((32, 32, 3, 0), np.uint8), "y": np.zeros((0, 1))}, "for n >= 1 labels, got uint8 .* for 0"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [1]]}, r"X must be uint8 \(32, 32, 3, n\)"),
    ):
        savemat(path, arrays)
        with pytest.raises(DamagedFileError, match=message):
            load_dataset("svhn", folder=tmp_path)


@pytest.mark.data
def test_real_svhn(data_folder):
    data = load_dataset("svhn", folder=data_folder)
    assert (len(data.train), len(data.test)) == (6_000, 3_000)
    assert int(torch.bincount(data.train.targets).argmax()) == 1  # the first digit of most house numbers
