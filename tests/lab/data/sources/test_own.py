"""A user's own data: .npz files and folders of images, good and bad."""

import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError
from metacal.lab.data import load_dataset

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


@pytest.mark.parametrize(
    "keys",
    [("train_inputs", "train_targets", "test_inputs", "test_targets"), ("x_train", "y_train", "x_test", "y_test")],
)
def test_npz_with_a_test_set(tmp_path, keys):
    path = tmp_path / "mine.npz"
    np.savez(path, **dict(zip(keys, (X, Y, X[:4], Y[:4]))), class_names=np.array(["cat", "dog"]))
    data = load_dataset(path)
    assert data.name == "mine"
    assert data.class_names == ("cat", "dog")
    assert len(data.test) == 4
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
    assert data.kind == "text"
    assert data.train.inputs.dtype is torch.int32
    assert data.embeddings.shape == (40, 5)


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
        ({"inputs": X, "targets": np.array([{}] * 20)}, InvalidValueError, "pickled objects, which are not loaded"),
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


def write_images(root, classes=("cat", "dog"), number=5, size=(9, 7), mode="RGB"):
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for image in range(number):
            Image.new(mode, size, (label * 100 + image,) * 3 if mode == "RGB" else label).save(
                root / name / f"{image}.png"
            )


def test_images_by_class_with_a_test_folder(tmp_path):
    write_images(tmp_path / "train", number=5)
    write_images(tmp_path / "test", number=2)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".hidden").mkdir()
    data = load_dataset(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.input_shape == (3, 7, 9)
    assert (len(data.train), len(data.test)) == (10, 4)
    assert data.train.targets.tolist() == [0] * 5 + [1] * 5
    assert int(data.train.inputs[6, 1, 2, 3]) == 101
    assert len(data.mean) == 3


def test_images_by_class_without_a_test_folder_resized_and_grey(tmp_path):
    write_images(tmp_path, number=10)
    Image.new("L", (20, 30), 7).save(tmp_path / "cat" / "other.jpg")
    data = load_dataset(str(tmp_path), size=8, channels=1, test_share=0.25)
    assert data.input_shape == (1, 8, 8)
    assert (len(data.train), len(data.test)) == (16, 5)


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (
            lambda root: Image.new("RGB", (5, 7)).save(root / "dog" / "9.png"),
            {},
            InvalidValueError,
            r"dog/9.png must be 7 x 9 pixels \(height x width\) like the first image, got 7 x 5; size=32 resizes",
        ),
        (
            lambda root: (root / "dog" / "1.png").write_bytes(b"no"),
            {},
            DamagedFileError,
            r"dog/1.png cannot be read as an im",
        ),
        (
            lambda root: (root / "dog" / "1.png").write_bytes((root / "dog" / "0.png").read_bytes()[:45]),
            {"size": 8},
            DamagedFileError,
            r"dog/1.png cannot be read as an image",
        ),
        (
            lambda root: (root / "dog").rename(root / ".dog"),
            {},
            InvalidValueError,
            "at least 2 folders by class .* got cat",
        ),
        (lambda root: None, {"channels": 4}, InvalidValueError, "`channels` must be 1 or 3, got 4"),
        (lambda root: None, {"size": (4, 6)}, InvalidTypeError, "`size` must be an integer"),
        (lambda root: None, {"size": 0}, InvalidValueError, "`size` must be an integer >= 1"),
        (lambda root: None, {"sized": 3}, InvalidTypeError, "takes the options size, channels"),
    ],
)
def test_bad_image_folders(tmp_path, change, options, error, message):
    write_images(tmp_path)
    change(tmp_path)
    with pytest.raises(error, match=message):
        load_dataset(tmp_path, **options)


def test_unknown_class_in_the_test_folder(tmp_path):
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", classes=("cat", "cow"))
    with pytest.raises(InvalidValueError, match="only, got cow"):
        load_dataset(tmp_path)


def test_an_image_that_is_too_large_to_be_one(tmp_path, monkeypatch):
    write_images(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(DamagedFileError, match="exceeds limit of"):
        load_dataset(tmp_path)
