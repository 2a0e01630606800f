"""CIFAR-10-C as published: mapped from a folder or inside its archive; damage and wrong lengths are named."""

import tarfile

import numpy as np
import pytest
import torch
from tests.lab.data import files

from metacal.errors import DamagedFileError, MetacalError, MissingDataError
from metacal.lab.data import SOURCES, load_dataset
from metacal.lab.data.corruptions import CORRUPTIONS, corrupt
from metacal.lab.data.domains import shifted_sets
from metacal.lab.data.fetch import check_dataset, take_stock
from metacal.lab.data.sources.cifar_c import find_published, read_published

ROWS = 4


@pytest.fixture
def published(tmp_path):
    """A folder like the published one, with four images for each severity."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    random = np.random.default_rng(0)
    labels = np.tile(np.arange(ROWS), 5).astype(np.uint8)
    np.save(folder / "labels.npy", labels)
    for name in CORRUPTIONS:
        np.save(folder / f"{name}.npy", random.integers(256, size=(5 * ROWS, 32, 32, 3), dtype=np.uint8))
    return tmp_path


def pack(folder):
    with tarfile.open(folder / "CIFAR-10-C.tar", "w") as archive:
        archive.add(folder / "CIFAR-10-C", "CIFAR-10-C")
    for file in (folder / "CIFAR-10-C").iterdir():
        file.unlink()
    (folder / "CIFAR-10-C").rmdir()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_severity_is_a_fifth_of_the_array(published, is_packed):
    wanted = np.load(published / "CIFAR-10-C" / "fog.npy")
    if is_packed:
        pack(published)
    path = find_published(published, "cifar10")
    for severity in (1, 2, 5):
        examples = read_published(path, "fog", severity)
        rows = wanted[(severity - 1) * ROWS : severity * ROWS]
        assert torch.equal(examples.inputs, torch.from_numpy(rows.transpose(0, 3, 1, 2).copy()))
        assert examples.targets.tolist() == list(range(ROWS))
    assert find_published(published, "svhn") is None
    assert find_published(published / "elsewhere", "cifar10") is None


def test_real_arrays_come_before_generated_ones(published):
    files.write_folder(published, files.cifar10_files()[0])
    clean = load_dataset("cifar10", folder=published)
    sets = shifted_sets(clean, [("fog", 2), ("snow", 1)], folder=published)
    assert sets.source == "real"
    assert [len(examples) for examples in sets] == [ROWS, ROWS]
    shown = load_dataset("cifar10-c", folder=published, corruption="fog", severity=2)
    assert torch.equal(shown.test.inputs, next(iter(sets)).inputs)
    assert torch.equal(shown.train.inputs, clean.train.inputs)
    check_dataset("cifar10-c", folder=published)
    stock = {each.source.name: each for each in take_stock(published)}
    assert stock["cifar10-c"].files == (published / "CIFAR-10-C",)
    assert stock["cifar100-c"].files == ()
    assert stock["cifar100-c"].megabytes == pytest.approx(2918)
    pack(published)
    (published / "CIFAR-10-C.tar").unlink()
    sets = shifted_sets(clean, [("fog", 2)], folder=published)
    made = next(iter(sets)).inputs
    assert sets.source == "generated"
    assert made.shape == clean.test.inputs.shape
    assert not torch.equal(made, clean.test.inputs)
    assert torch.equal(made, next(iter(sets)).inputs)
    assert torch.equal(load_dataset("cifar10-c", folder=published, corruption="fog", severity=2).test.inputs, made)
    assert made.dtype is corrupt(clean.test.inputs, "fog", 2, seed=0).dtype


def test_arrays_of_the_wrong_length(published):
    folder = published / "CIFAR-10-C"
    np.save(folder / "fog.npy", np.zeros((18, 32, 32, 3), np.uint8))
    with pytest.raises(DamagedFileError, match="got 18 rows and 20 labels"):
        read_published(folder, "fog", 1)
    np.save(folder / "snow.npy", np.zeros((20, 32, 32, 3), np.float32))
    with pytest.raises(DamagedFileError, match="must be uint8"):
        read_published(folder, "snow", 1)
    np.save(folder / "labels.npy", np.zeros(18, np.uint8))
    with pytest.raises(DamagedFileError, match="5 severities"):
        read_published(folder, "fog", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "labels.npy").unlink(), "must hold labels.npy"),
        (lambda folder: np.save(folder / "labels.npy", np.zeros((20, 2))), "must be integers (rows,)"),
        (lambda folder: (folder / "fog.npy").write_bytes(b"no array"), "CIFAR-10-C is damaged: fog.npy: "),
        (
            lambda folder: (folder / "fog.npy").write_bytes((folder / "fog.npy").read_bytes()[:5000]),
            "CIFAR-10-C is damaged: fog.npy: ",
        ),
        (lambda folder: np.save(folder / "fog.npy", np.array([{}])), "CIFAR-10-C is damaged: fog.npy: "),
    ],
)
def test_damage_is_named(published, change, message):
    change(published / "CIFAR-10-C")
    with pytest.raises(MetacalError) as caught:
        read_published(published / "CIFAR-10-C", "fog", 1)
    assert message in str(caught.value)


def test_a_truncated_archive(published):
    pack(published)
    archive = published / "CIFAR-10-C.tar"
    archive.write_bytes(archive.read_bytes()[:150_000])
    with pytest.raises(DamagedFileError, match="expected md5:56bf5dc"):
        check_dataset("cifar10-c", folder=published)
    with pytest.raises(DamagedFileError, match=r"CIFAR-10-C.tar is damaged"):
        read_published(archive, "fog", 1)


def test_what_is_missing_is_said_with_the_command(tmp_path, published):
    with pytest.raises(MissingDataError, match="metacal data fetch cifar10-c --data-dir"):
        check_dataset("cifar10-c", folder=tmp_path / "empty")
    (published / "CIFAR-10-C" / "snow.npy").unlink()
    with pytest.raises(MissingDataError, match=r"must hold snow.npy"):
        read_published(published / "CIFAR-10-C", "snow", 1)


def test_where_they_come_from():
    (remote,) = SOURCES["cifar10-c"].downloads
    assert remote.url == "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar"
    assert remote.hash == "md5:56bf5dcef84df0e2308c6dcbcbbd8499"
    assert "3555552" in SOURCES["cifar100-c"].downloads[0].url
