"""SVHN, cropped digits, in the official ``.mat`` layout."""

from pathlib import Path

import numpy as np
import torch

from metacal.data.dataset import Dataset, Examples
from metacal.data.files import damaged, first_found, missing
from metacal.data.sources.cifar_binary import MEAN, STD


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
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        arrays = loadmat(path, variable_names=("X", "y"))
    except (
        ValueError,
        TypeError,
        OSError,
        EOFError,
        KeyError,
        NotImplementedError,
        MatReadError,
        MemoryError,
    ) as error:
        raise damaged(path, f"it cannot be read as a MATLAB 5 file ({type(error).__name__}: {error})") from None
    except Exception as error:  # zlib and struct errors come through as they are
        raise damaged(path, f"it cannot be read as a MATLAB 5 file ({type(error).__name__})") from None
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or labels is None:
        raise damaged(path, "it must hold the arrays X and y")
    labels = np.asarray(labels).reshape(-1)
    if (
        images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[:3] != (32, 32, 3)
        or len(labels) != images.shape[3]
    ):
        raise damaged(path, f"X must be uint8 (32, 32, 3, n) for n labels, got {images.dtype} {images.shape}")
    if labels.min() < 1 or labels.max() > 10:
        raise damaged(path, f"labels must lie in 1..10, got {labels.min()}..{labels.max()}")
    pixels = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
    return Examples(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))
