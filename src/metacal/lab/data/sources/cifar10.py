"""CIFAR-10 in its binary edition, from the archive or extracted."""

from pathlib import Path

import numpy as np

from metacal.lab.data.dataset import Dataset
from metacal.lab.data.files import first_found, missing
from metacal.lab.data.sources.cifar_binary import MEAN, STD, as_examples, read_files, read_names, read_records

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PATTERNS = ("cifar-10-batches-bin", "cifar-10-binary.tar.gz", "cifar-10-binary*.tar.gz")
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
NAMES = "batches.meta.txt"


def find(folder: Path) -> tuple[Path, ...]:
    """The folder or archive that `load` reads: extracted before packed, complete before any other edition."""
    found = folder if (folder / TEST).is_file() else first_found(folder, PATTERNS)
    if found is None:
        raise missing("cifar10", folder, "the folder cifar-10-batches-bin or cifar-10-binary*.tar.gz")
    return (found,)


def load(folder: Path) -> Dataset:
    """50,000 training and 10,000 test images; training pads, crops and flips."""
    (path,) = find(folder)
    files = read_files(path, (*TRAIN, TEST, NAMES))
    parts = {name: read_records(path, name, files[name], 1) for name in (*TRAIN, TEST)}
    images = np.concatenate([parts[name][1] for name in TRAIN])
    labels = np.concatenate([parts[name][0][:, 0] for name in TRAIN])
    return Dataset(
        "cifar10",
        "image",
        as_examples(path, "data_batch_*.bin", images, labels, len(CLASSES)),
        as_examples(path, TEST, parts[TEST][1], parts[TEST][0][:, 0], len(CLASSES)),
        read_names(files.get(NAMES), CLASSES),
        mean=MEAN,
        std=STD,
        augment=True,
        files=(str(path),),
    )
