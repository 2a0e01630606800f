"""Tiny datasets written in the formats of the real ones."""

import gzip
import io
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
from scipy.io import savemat

from metacal.lab.data.sources import SOURCES, cifar, fashion_mnist, newsgroups

RANDOM = np.random.default_rng(0)


def write_tar(path, files, links=()):
    """A .tar.gz with these contents by name, and symbolic links (name, target)."""
    with tarfile.open(path, "w:gz") as archive:
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_folder(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def cifar10_files(images=4):
    """Contents by name, and the training images and labels in them."""
    pixels = RANDOM.integers(0, 256, (6, images, 3072), dtype=np.uint8)
    labels = RANDOM.integers(0, 10, (6, images, 1), dtype=np.uint8)
    records = np.concatenate([labels, pixels], axis=2)
    names = [*cifar.TRAIN_10, cifar.TEST_10]
    files = {f"cifar-10-batches-bin/{name}": part.tobytes() for name, part in zip(names, records)}
    return files, pixels[:5].reshape(-1, 3, 32, 32), labels[:5].reshape(-1)


def cifar100_files(images=6):
    files = {}
    for name in (cifar.TRAIN_100, cifar.TEST_100):
        fine = RANDOM.integers(0, 100, (images, 1), dtype=np.uint8)
        coarse = np.array(cifar.COARSE, np.uint8)[fine]
        pixels = RANDOM.integers(0, 256, (images, 3072), dtype=np.uint8)
        files[f"cifar-100-binary/{name}"] = np.concatenate([coarse, fine, pixels], axis=1).tobytes()
    return files


def write_svhn(folder, prefix="", suffix=""):
    """Both files; the labels of the training file."""
    for part in ("train", "test"):
        labels = np.array([10, 1, 2, 9], np.uint8)[:, None]
        images = RANDOM.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
        savemat(folder / f"{prefix}{part}_32x32{suffix}.mat", {"X": images, "y": labels}, do_compression=True)


def fashion_in(monkeypatch, *places):
    """Have Fashion-MNIST looked for in these places only, not where this machine has it."""
    source = replace(fashion_mnist.FASHION_MNIST, patterns=fashion_mnist.in_places(*map(str, places)))
    monkeypatch.setattr(fashion_mnist, "FASHION_MNIST", source)
    monkeypatch.setitem(SOURCES, source.name, source)


def idx(values):
    return struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_fashion(folder, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    images = RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([0, 9, 3, 3, 1], np.uint8)
    for stem in fashion_mnist.STEMS:
        content = idx(images if "images" in stem else labels)
        (folder / (f"{stem}.gz" if packed else stem)).write_bytes(gzip.compress(content) if packed else content)
    return images, labels


def newsgroup_files(prefixes=("20news-bydate-train", "20news-bydate-test")):
    files = {}
    for number, group in enumerate(newsgroups.GROUPS):
        for place, prefix in enumerate(prefixes):
            body = f"The WORD{number}, it isn't caf\xe9-like: alpha beta" + " gamma" * number
            files[f"{prefix}/{group}/{1000 + place}"] = f"From: header\nSubject: head\n\n{body}\n\nend".encode(
                "latin-1"
            )
    return files


def write_glove(folder, kind="gz"):
    words = ["the", "alpha", "word3", "unused"]
    lines = "".join(
        f"{word} " + " ".join(f"{i + 0.5 * k:.4f}" for i in range(100)) + "\n" for k, word in enumerate(words)
    )
    if kind == "gz":
        (folder / "glove.6B.100d.subset.txt.gz").write_bytes(gzip.compress(lines.encode()))
    elif kind == "zip":
        with zipfile.ZipFile(folder / "glove.6B.zip", "w") as archive:
            archive.writestr("glove.6B.100d.txt", lines)
    else:
        (folder / "glove.6B.100d.txt").write_text(lines)
