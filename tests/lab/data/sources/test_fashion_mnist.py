"""Fashion-MNIST on tiny files in the real format and on damaged ones."""

import gzip

import numpy as np
import pytest
from tests.lab.data import files

from metacal.errors import DamagedFileError, MissingDataError
from metacal.lab.data import load_dataset
from metacal.lab.data.sources import fashion_mnist


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist(tmp_path, monkeypatch, packed, place):
    images, labels = files.write_fashion(tmp_path / place, packed)
    data = load_dataset("fashion-mnist", folder=tmp_path)
    assert np.array_equal(data.train.inputs[:, 0].numpy(), images)
    assert data.test.targets.tolist() == labels.tolist()
    assert data.class_names[9] == "Ankle boot"
    assert len(data.files) == 4
    files.fashion_in(monkeypatch, tmp_path / place)  # Debian has it at an absolute path
    assert load_dataset("fashion-mnist", folder=tmp_path / "elsewhere").files == data.files


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch):
    files.fashion_in(monkeypatch, *fashion_mnist.SUBFOLDERS)
    files.write_fashion(tmp_path / "mnist")
    with pytest.raises(MissingDataError):
        load_dataset("fashion-mnist", folder=tmp_path / "mnist")


@pytest.mark.parametrize(
    ("stem", "content", "message"),
    [
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x01" + bytes(12),
            "does not start like an idx file of bytes with 3 dimensions",
        ),
        (
            "train-images-idx3-ubyte",
            files.idx(np.zeros((5, 28, 28), np.uint8))[:-1],
            "must hold 3,920 values .* got 3,919",
        ),
        ("train-labels-idx1-ubyte", files.idx(np.zeros(4, np.uint8)), "must hold a label for each of 5 images, got 4"),
        ("train-labels-idx1-ubyte", files.idx(np.full(5, 10, np.uint8)), r"labels must lie in 0..9, got 10"),
    ],
)
def test_damaged_fashion_mnist(tmp_path, stem, content, message):
    files.write_fashion(tmp_path / "fashion-mnist")
    (tmp_path / "fashion-mnist" / f"{stem}.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DamagedFileError, match=message):
        load_dataset("fashion-mnist", folder=tmp_path)
