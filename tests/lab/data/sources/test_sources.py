"""load_dataset: names and near misses, options, folders, and what is said of missing files."""

from pathlib import Path

import pytest
from tests.lab.data import files

from metacal.errors import InvalidTypeError, InvalidValueError, MissingDataError
from metacal.lab.data import data_folder, load_dataset
from metacal.lab.data.sources import fashion_mnist


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar11", "got 'cifar11'; nearest: cifar10"),
        ("newsgroups", "nearest: 20newsgroups"),
        ("mnist", "nearest: fashion-mnist"),
        ("zzz", "got 'zzz'; nearest: digits, simulated, cifar10"),
        ("none/there.npz", "must name a file or folder that exists, got none/there.npz"),
    ],
)
def test_unknown_names_and_paths(name, message):
    with pytest.raises((InvalidValueError, MissingDataError), match=message):
        load_dataset(name)


def test_options_are_checked():
    with pytest.raises(InvalidTypeError, match="simulated takes the options n_train, n_test, seed, got n_tarin"):
        load_dataset("simulated", n_tarin=3)
    with pytest.raises(InvalidTypeError, match="`dataset` must be a name or a path, got int"):
        load_dataset(3)


def test_folder_is_argument_then_variable_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("METACAL_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder("here") == Path("here")
    monkeypatch.delenv("METACAL_DATA")
    assert data_folder().name == "metacal"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cifar10",
            r"cifar10 is not in FOLDER \(searched for the folder cifar-10-batches-bin or cifar-10-binary\*.tar.gz",
        ),
        (
            "cifar100",
            r"cifar-100-binary\*.tar.gz\); to get it: metacal data fetch cifar100 --data-dir FOLDER",
        ),
        ("svhn", r"train_32x32.mat, svhn/train_32x32.mat or svhn_train_32x32\*.mat"),
        ("20newsgroups", r"searched for .*20news-bydate\*.tar.gz"),
        ("fashion-mnist", r"train-images-idx3-ubyte\[.gz\]"),
    ],
)
def test_missing_data_says_what_where_and_how(tmp_path, monkeypatch, name, message):
    files.fashion_in(monkeypatch, *fashion_mnist.SUBFOLDERS)
    with pytest.raises(MissingDataError, match=message.replace("FOLDER", str(tmp_path))) as caught:
        load_dataset(name, folder=tmp_path)
    assert f"metacal data fetch {name}" in str(caught.value)


def test_missing_data_in_the_default_folder_needs_no_data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("METACAL_DATA", str(tmp_path / "nothing"))
    with pytest.raises(MissingDataError, match=r"to get it: metacal data fetch cifar10 \("):
        load_dataset("CIFAR-10")
