"""load_dataset: names and near misses, options, paths, the built-in sources, .npz files."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError, MissingDataError
from metacal.lab.data import data_folder, load_dataset, simulated_oracle

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


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
    assert data_folder() == tmp_path and data_folder("here") == Path("here")
    monkeypatch.delenv("METACAL_DATA")
    assert data_folder().name == "metacal"


def test_digits():
    digits = load_dataset("digits")
    assert digits.train.inputs.dtype is torch.uint8 and int(digits.train.inputs.max()) == 255
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1438, 359, 10)
    assert torch.equal(digits.test.inputs, load_dataset("digits").test.inputs)
    assert int(torch.bincount(digits.test.targets).min()) >= 34 and not digits.augment


def test_simulated_data_follow_their_oracle():
    data = load_dataset("simulated", n_train=200, n_test=20_000, seed=1)
    weight, bias = simulated_oracle(seed=1)
    probs = torch.sigmoid(data.test.inputs.double() @ weight + bias)
    assert abs(float(probs.mean() - data.test.targets.double().mean())) < 0.015
    sure = probs > 0.9
    assert abs(float(data.test.targets[sure].double().mean() - probs[sure].mean())) < 0.02
    more = load_dataset("simulated", n_train=500, n_test=20_000, seed=1)
    assert torch.equal(more.train.inputs[:200], data.train.inputs)
    assert torch.equal(more.train.targets[:200], data.train.targets)
    assert torch.equal(more.test.inputs, data.test.inputs)
    assert not torch.equal(load_dataset("simulated", seed=2).train.inputs[:200], data.train.inputs)


def test_simulated_oracles_spread_as_stated():
    oracles = [simulated_oracle(seed) for seed in range(2000)]
    weights = torch.stack([weight for weight, _ in oracles])
    biases = torch.stack([bias for _, bias in oracles])
    assert abs(float(weights.std()) - 2.5) < 0.15 and abs(float(biases.std()) - 0.5) < 0.04


@pytest.mark.parametrize(
    "keys",
    [("train_inputs", "train_targets", "test_inputs", "test_targets"), ("x_train", "y_train", "x_test", "y_test")],
)
def test_npz_with_a_test_set(tmp_path, keys):
    path = tmp_path / "mine.npz"
    np.savez(path, **dict(zip(keys, (X, Y, X[:4], Y[:4]))), class_names=np.array(["cat", "dog"]))
    data = load_dataset(path)
    assert data.name == "mine" and data.class_names == ("cat", "dog") and len(data.test) == 4
    assert data.files == (str(path),)


def test_npz_without_a_test_set(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=X, targets=Y)
    data = load_dataset(str(path), test_share=0.5, seed=3, num_classes=3)
    assert (len(data.train), len(data.test), data.num_classes) == (10, 10, 3)


def test_npz_with_names_as_bytes(tmp_path):
    np.savez(tmp_path / "mine.npz", inputs=X, targets=Y, class_names=np.array([b"cat", b"dog"]))
    assert load_dataset(tmp_path / "mine.npz").class_names == ("cat", "dog")


def test_npz_of_text(tmp_path):
    path = tmp_path / "text.npz"
    np.savez(path, inputs=np.arange(40).reshape(20, 2), targets=Y, embeddings=np.zeros((40, 5)))
    data = load_dataset(path, kind="text")
    assert data.kind == "text" and data.train.inputs.dtype is torch.int32 and data.embeddings.shape == (40, 5)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"x": X}, InvalidValueError, "must hold the arrays train_inputs, .*; got x"),
        ({"inputs": X, "targets": Y - 1}, InvalidValueError, r"mine.npz: `train_targets` must lie in 0..1"),
        ({"inputs": X, "targets": Y * 0.5}, InvalidTypeError, "mine.npz: `train_targets` must be integer class labels"),
        (
            {"inputs": X, "targets": Y * 10**9},
            InvalidValueError,
            r"`train_targets` must be class labels 0\.\.K-1, got 10{9};",
        ),
        (
            {"inputs": X, "targets": Y, "class_names": np.zeros(2, "V4")},
            InvalidTypeError,
            r"mine\.npz: `class_names` must hold text, got dtype \|V4",
        ),
        ({"inputs": X, "targets": np.array([{}] * 20)}, InvalidValueError, "pickled objects, which are never loaded"),
    ],
)
def test_bad_npz(tmp_path, arrays, error, message):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(error, match=message):
        load_dataset(path)


def test_an_archive_with_something_else_in_it(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=X, targets=Y)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", b"hello")
    with pytest.raises(InvalidValueError, match=r"must hold arrays only, got notes\.txt"):
        load_dataset(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"PK\1\2\x14\x03\x14", b"PK\1\2\x14\x03\xff"))
    with pytest.raises(DamagedFileError, match=r"cannot be read as \.npz: zip file version"):
        load_dataset(path)


def test_wide_floats_are_read(tmp_path):
    read = []
    for dtype in (np.float32, np.longdouble):
        np.savez(tmp_path / "mine.npz", inputs=X.astype(dtype), targets=Y)
        read.append(load_dataset(tmp_path / "mine.npz").train.inputs)
    assert torch.equal(*read)


def test_damaged_npz(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, inputs=X, targets=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedFileError, match=r"mine.npz cannot be read as .npz"):
        load_dataset(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs.npy", b"\x93NUMPY rubbish")
    with pytest.raises(DamagedFileError, match=r"mine.npz cannot be read as .npz"):
        load_dataset(path)
    np.save(path.with_suffix(".npy"), X)
    path.with_suffix(".npy").rename(path)
    with pytest.raises(InvalidValueError, match="got a single array"):
        load_dataset(path)
    path.with_suffix(".txt").write_text("x")
    with pytest.raises(InvalidValueError, match=r"must be an .npz file or a folder of images"):
        load_dataset(path.with_suffix(".txt"))
