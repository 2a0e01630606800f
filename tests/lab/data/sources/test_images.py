"""The image sources on tiny files in the real formats, on damaged ones, and on the real data."""

import gzip

import numpy as np
import pytest
import torch
from PIL import Image
from tests.lab.data import files

from metacal.errors import DamagedFileError, InvalidTypeError, InvalidValueError, MissingDataError
from metacal.lab.data import load_dataset
from metacal.lab.data.sources import cifar, fashion_mnist


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_from_folder_and_archive(tmp_path, packed):
    contents, images, labels = files.cifar10_files()
    if packed:
        files.write_tar(tmp_path / "cifar-10-binary.tar.gz", contents)
    else:
        files.write_folder(tmp_path, contents)
    data = load_dataset("cifar10", folder=tmp_path)
    assert np.array_equal(data.train.inputs.numpy(), images) and data.train.targets.tolist() == labels.tolist()
    assert (
        len(data.test) == 4 and data.class_names[3] == "cat" and data.augment and data.mean == (0.4914, 0.4822, 0.4465)
    )
    assert data.files == (str(tmp_path / ("cifar-10-binary.tar.gz" if packed else "cifar-10-batches-bin")),)
    assert packed or len(load_dataset("cifar10", folder=tmp_path / "cifar-10-batches-bin").train) == 20


def test_complete_archives_go_before_subsets(tmp_path):
    files.write_tar(tmp_path / "cifar-100-binary.a.tar.gz", files.cifar100_files(3))
    assert len(load_dataset("cifar100", folder=tmp_path).train) == 3
    files.write_tar(tmp_path / "cifar-100-binary.tar.gz", files.cifar100_files(6))
    data = load_dataset("cifar100", folder=tmp_path)
    assert len(data.train) == 6 and data.files[0].endswith("cifar-100-binary.tar.gz")


def test_cifar100_keeps_superclasses(tmp_path):
    files.write_folder(tmp_path, files.cifar100_files())
    data = load_dataset("cifar100", folder=tmp_path)
    assert data.num_classes == 100 and len(data.superclass_names) == 20
    assert data.superclass_names[data.superclasses[data.class_names.index("wolf")]] == "large_carnivores"
    assert np.bincount(data.superclasses).tolist() == [5] * 20


def test_cifar100_with_a_wrong_superclass_is_damaged(tmp_path):
    contents = files.cifar100_files()
    wrong = bytearray(contents["cifar-100-binary/train.bin"])
    wrong[0] = (wrong[0] + 1) % 20
    files.write_folder(tmp_path, contents | {"cifar-100-binary/train.bin": bytes(wrong)})
    with pytest.raises(DamagedFileError, match=r"train.bin has superclass \d+ for class \d+"):
        load_dataset("cifar100", folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("cifar-10-batches-bin/data_batch_3.bin"), r"does not hold data_batch_3.bin"),
        (
            lambda c: c.update({"cifar-10-batches-bin/test_batch.bin": b"x" * 3074}),
            r"test_batch.bin must hold records of 3,073 bytes, got 3,074 bytes",
        ),
        (
            lambda c: c.update({"cifar-10-batches-bin/test_batch.bin": b"\x0b" + b"x" * 3072}),
            r"test_batch.bin must have labels 0..9, got 11",
        ),
        (lambda c: c.update({"cifar-10-batches-bin/test_batch.bin": b""}), "got 0 bytes"),
        (lambda c: c.update({"../outside.bin": b"x"}), r"member '../outside.bin' leads out of the archive"),
        (lambda c: c.update({"/tmp/outside.bin": b"x"}), r"leads out of the archive"),
    ],
)
def test_damaged_cifar10(tmp_path, change, message):
    contents = files.cifar10_files()[0]
    change(contents)
    folder = tmp_path / "data"
    folder.mkdir()
    files.write_tar(folder / "cifar-10-binary.tar.gz", contents)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DamagedFileError, match=message):
        load_dataset("cifar10", folder=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_links_in_an_archive_are_not_followed(tmp_path):
    contents = files.cifar10_files()[0]
    (tmp_path / "secret").write_bytes(contents.pop("cifar-10-batches-bin/test_batch.bin"))
    links = [("cifar-10-batches-bin/test_batch.bin", str(tmp_path / "secret"))]
    files.write_tar(tmp_path / "cifar-10-binary.tar.gz", contents, links)
    with pytest.raises(DamagedFileError, match=r"does not hold test_batch.bin"):
        load_dataset("cifar10", folder=tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_truncated_archive_is_named_with_both_hashes(tmp_path, keep):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files.write_tar(path, files.cifar10_files()[0])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(
        DamagedFileError, match=r"cifar-10-binary.tar.gz is damaged: .*expected md5:c32a1d4a\w+, found md5:\w{32}"
    ):
        load_dataset("cifar10", folder=tmp_path)


def test_a_flipped_bit_fails_the_checksum(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files.write_tar(path, files.cifar10_files()[0])
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1  # random pixels are stored, not compressed: the stream can still be read
    path.write_bytes(bytes(whole))
    with pytest.raises(DamagedFileError, match="is damaged"):
        load_dataset("cifar10", folder=tmp_path)


def test_a_page_saved_in_place_of_an_archive(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_text("<html>404</html>")
    with pytest.raises(DamagedFileError, match="Not a gzipped file"):
        load_dataset("cifar10", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10", r"cifar10 is not in FOLDER, where the folder cifar-10-batches-bin or cifar-10-binary\*.tar.gz"),
        (
            "cifar100",
            r"cifar-100-binary\*.tar.gz was looked for; get it by: metacal data fetch cifar100 --data-dir FOLDER",
        ),
        ("svhn", r"train_32x32.mat, svhn/train_32x32.mat or svhn_train_32x32\*.mat"),
        ("20newsgroups", r"20news-bydate\*.tar.gz was looked for"),
        ("fashion-mnist", r"train-images-idx3-ubyte\[.gz\]"),
    ],
)
def test_missing_data_says_what_where_and_how(tmp_path, monkeypatch, name, message):
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    with pytest.raises(MissingDataError, match=message.replace("FOLDER", str(tmp_path))) as caught:
        load_dataset(name, folder=tmp_path)
    assert f"metacal data fetch {name}" in str(caught.value)


def test_missing_data_in_the_default_folder_needs_no_data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("METACAL_DATA", str(tmp_path / "nothing"))
    with pytest.raises(MissingDataError, match=r"get it by: metacal data fetch cifar10 \("):
        load_dataset("CIFAR-10")


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("svhn_", ".subset")])
def test_svhn(tmp_path, prefix, suffix):
    files.write_svhn(tmp_path, prefix, suffix)
    data = load_dataset("svhn", folder=tmp_path)
    assert data.train.targets.tolist() == [0, 1, 2, 9] and data.input_shape == (3, 32, 32) and not data.augment
    from scipy.io import loadmat

    images = loadmat(data.files[0])["X"]
    assert np.array_equal(data.train.inputs[2].numpy(), images[:, :, :, 2].transpose(2, 0, 1))


def test_damaged_svhn(tmp_path):
    from scipy.io import savemat

    files.write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"rubbish" * 100, whole[:200]):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"train_32x32.mat is damaged: .*expected md5:e26dedcc"):
            load_dataset("svhn", folder=tmp_path)
    for arrays, message in (
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "must hold the arrays X and y"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[0], [1]]}, "labels must be the numbers 1..10, got 0"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [np.nan]]}, "labels must be .* 1..10, got nan"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [2.5]]}, "labels must be the numbers 1..10, got 2.5"),
        ({"X": np.zeros((32, 32, 3, 0), np.uint8), "y": np.zeros((0, 1))}, "for n >= 1 labels, got uint8 .* for 0"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [1]]}, r"X must be uint8 \(32, 32, 3, n\)"),
    ):
        savemat(path, arrays)
        with pytest.raises(DamagedFileError, match=message):
            load_dataset("svhn", folder=tmp_path)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist(tmp_path, monkeypatch, packed, place):
    images, labels = files.write_fashion(tmp_path / place, packed)
    for folder in (tmp_path, *([tmp_path / place] if place == "fashion-mnist" else [])):
        data = load_dataset("fashion-mnist", folder=folder)
        assert np.array_equal(data.train.inputs[:, 0].numpy(), images) and data.test.targets.tolist() == labels.tolist()
    assert data.class_names[9] == "Ankle boot" and len(data.files) == 4
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / place)
    assert load_dataset("fashion-mnist", folder=tmp_path / "elsewhere").files == data.files


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    files.write_fashion(tmp_path / "mnist")
    with pytest.raises(MissingDataError):
        load_dataset("fashion-mnist", folder=tmp_path / "mnist")


@pytest.mark.parametrize(
    ("stem", "content", "message"),
    [
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x01" + bytes(12),
            "does not start as an idx file of bytes with 3 dimensions",
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
    assert data.class_names == ("cat", "dog") and data.input_shape == (3, 7, 9)
    assert (len(data.train), len(data.test)) == (10, 4) and data.train.targets.tolist() == [0] * 5 + [1] * 5
    assert int(data.train.inputs[6, 1, 2, 3]) == 101 and len(data.mean) == 3


def test_images_by_class_without_a_test_folder_resized_and_grey(tmp_path):
    write_images(tmp_path, number=10)
    Image.new("L", (20, 30), 7).save(tmp_path / "cat" / "other.jpg")
    data = load_dataset(str(tmp_path), size=8, channels=1, test_share=0.25)
    assert data.input_shape == (1, 8, 8) and (len(data.train), len(data.test)) == (16, 5)
    assert load_dataset(tmp_path, size=(4, 6)).input_shape == (3, 4, 6)


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
        (lambda root: None, {"size": (1, 2, 3)}, InvalidValueError, "`size` must be a number or"),
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


@pytest.mark.data
def test_real_cifar100(data_folder):
    data = load_dataset("cifar100", folder=data_folder)
    assert (len(data.train), len(data.test)) == (10_000, 2_000)
    assert torch.bincount(data.train.targets).tolist() == [100] * 100
    assert data.class_names == cifar.CLASSES_100 and data.superclass_names == tuple(cifar.SUPERCLASSES)
    assert "subset" in data.files[0]
    means = data.train.inputs.double().mean((0, 2, 3)) / 255
    assert torch.allclose(means, torch.tensor([0.507, 0.487, 0.441], dtype=torch.float64), atol=0.01)


@pytest.mark.data
def test_real_svhn(data_folder):
    data = load_dataset("svhn", folder=data_folder)
    assert (len(data.train), len(data.test)) == (6_000, 3_000)
    assert int(torch.bincount(data.train.targets).argmax()) == 1  # the first digit of most house numbers
