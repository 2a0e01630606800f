"""The binary format of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3,072 pixels."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.lab.data.dataset import Examples
from metacal.lab.data.files import damaged, read_members

PIXELS = 3 * 32 * 32
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)


def read_files(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Contents of the files with these names in an archive or folder; every ``.bin`` must be there."""
    found = {name.name: content for name, content in read_members(path, lambda name: name.name in names)}
    lacking = [name for name in names if name.endswith(".bin") and name not in found]
    if lacking:
        raise damaged(path, f"it does not hold {', '.join(lacking)}")
    return found


def read_records(path: Path, name: str, content: bytes, num_labels: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Labels ``(n, num_labels)`` and images ``(n, 3, 32, 32)`` of one file."""
    size = num_labels + PIXELS
    if not content or len(content) % size:
        raise damaged(path, f"{name} must hold records of {size:,} bytes, got {len(content):,} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, :num_labels], records[:, num_labels:].reshape(-1, 3, 32, 32)


def as_examples(
    path: Path, name: str, images: NDArray[np.uint8], labels: NDArray[np.uint8], num_classes: int
) -> Examples:
    """Images and labels in memory of their own."""
    if labels.max() >= num_classes:
        raise damaged(path, f"{name} must have labels 0..{num_classes - 1}, got {labels.max()}")
    return Examples(torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64)))


def read_names(content: bytes | None, fallback: Sequence[str]) -> tuple[str, ...]:
    """Class names from a text file, one per line; ``fallback`` where it does not have as many."""
    names = [line.strip() for line in (content or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    return tuple(names) if len(names) == len(fallback) else tuple(fallback)
