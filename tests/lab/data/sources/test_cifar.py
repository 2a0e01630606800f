"""CIFAR-10 and CIFAR-100 on tiny files in the real format, on damaged ones, and on the real data."""

import numpy as np
import pytest
import torch
from tests.lab.data import files

from metacal.errors import DamagedFileError
from metacal.lab.data import load_dataset
from metacal.lab.data.sources import cifar


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_from_folder_and_archive(tmp_path, packed):
    contents, images, labels = files.cifar10_files()
    if packed:
        files.write_tar(tmp_path / "cifar-10-binary.tar.gz", contents)
    else:
        files.write_folder(tmp_path, contents)
    data = load_dataset("cifar10", folder=tmp_path)
    assert np.array_equal(data.train.inputs.numpy(), images)
    assert data.train.targets.tolist() == labels.tolist()
    assert len(data.test) == 4
    assert data.class_names[3] == "cat"
    assert data.augment
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.files == (str(tmp_path / ("cifar-10-binary.tar.gz" if packed else "cifar-10-batches-bin")),)


def test_complete_archives_go_before_subsets(tmp_path):
    files.write_tar(tmp_path / "cifar-100-binary.a.tar.gz", files.cifar100_files(3))
    assert len(load_dataset("cifar100", folder=tmp_path).train) == 3
    files.write_tar(tmp_path / "cifar-100-binary.tar.gz", files.cifar100_files(6))
    data = load_dataset("cifar100", folder=tmp_path)
    assert len(data.train) == 6
    assert data.files[0].endswith("cifar-100-binary.tar.gz")


def test_cifar100_keeps_superclasses(tmp_path):
    files.write_folder(tmp_path, files.cifar100_files())
    data = load_dataset("cifar100", folder=tmp_path)
    assert data.num_classes == 100
    assert list(cifar.SUPERCLASSES)[data.superclasses[data.class_names.index("wolf")]] == "large_carnivores"
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


@pytest.mark.data
def test_real_cifar100(data_folder):
    data = load_dataset("cifar100", folder=data_folder)
    assert (len(data.train), len(data.test)) == (10_000, 2_000)
    assert torch.bincount(data.train.targets).tolist() == [100] * 100
    assert data.class_names == cifar.CLASSES_100
    assert "subset" in data.files[0]
    means = data.train.inputs.double().mean((0, 2, 3)) / 255
    assert torch.allclose(means, torch.tensor([0.507, 0.487, 0.441], dtype=torch.float64), atol=0.01)
