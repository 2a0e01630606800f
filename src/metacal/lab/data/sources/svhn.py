"""SVHN, cropped digits, in the official ``.mat`` layout."""

from pathlib import Path

import numpy as np
import torch

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import damaged, first_found, missing
from metacal.lab.data.sources.cifar_binary import MEAN, STD
from metacal.lab.data.sources.mat5 import read_arrays


def find(folder: Path) -> tuple[Path, ...]:
    """The training and the test file that `load` reads; complete ones before any other edition."""
    found = []
    for part in ("train", "test"):
        name = f"{part}_32x32"
        path = first_found(folder, (f"{name}.mat", f"svhn/{name}.mat", f"svhn_{name}*.mat", f"{name}*.mat"))
        if path is None:
            raise missing("svhn", folder, f"{name}.mat, svhn/{name}.mat or svhn_{name}*.mat")
        found.append(path)
    return tuple(found)


def load(folder: Path) -> Dataset:
    """73,257 training and 26,032 test images, label 10 read as digit 0.

    As published: no augmentation, and scaled by the mean and standard deviation of CIFAR-10.
    """
    files = find(folder)
    train, test = (read_mat(path) for path in files)
    return Dataset(
        "svhn",
        "image",
        train,
        test,
        tuple(map(str, range(10))),
        mean=MEAN,
        std=STD,
        files=tuple(map(str, files)),
    )


def read_mat(path: Path) -> Examples:
    """Images ``X`` (32, 32, 3, n) and labels ``y`` (n, 1), 1..10, of one file."""
    arrays = read_arrays(path, ("X", "y"))
    if len(arrays) < 2:
        raise damaged(path, "it must hold the arrays X and y of numbers")
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)) or not len(labels):
        got = f"{images.dtype} {images.shape} for {len(labels)}"
        raise damaged(path, f"X must be uint8 (32, 32, 3, n) for n >= 1 labels, got {got}")
    is_digit = np.isin(labels, np.arange(1, 11))
    if not is_digit.all():
        raise damaged(path, f"labels must be the numbers 1..10, got {labels[~is_digit][0]}")
    pixels = images.transpose(3, 2, 1, 0)  # as they lie in memory; columns go before rows
    for start in range(0, len(pixels), 1024):
        pixels[start : start + 1024] = pixels[start : start + 1024].swapaxes(2, 3)
    return Examples(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))
