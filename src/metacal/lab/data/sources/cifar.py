"""CIFAR-10 and CIFAR-100 in their binary edition, from the archive or the extracted folder.

A record is one or two label bytes, the class last, followed by 3,072 pixels.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.files import RemoteFile, Shape, Source, damaged, read_members

TORONTO = "https://www.cs.toronto.edu/~kriz"
PIXELS = 3 * 32 * 32
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
CLASSES_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_10 = "test_batch.bin"
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
CLASSES_100 = tuple(sorted(name for names in SUPERCLASSES.values() for name in names.split()))
COARSE = tuple(
    next(number for number, names in enumerate(SUPERCLASSES.values()) if name in names.split()) for name in CLASSES_100
)
TRAIN_100, TEST_100 = "train.bin", "test.bin"


def load_cifar10(folder: Path) -> Dataset:
    """50,000 training and 10,000 test images; training pads, crops and flips."""
    (path,) = CIFAR10.find(folder)
    files = _read_files(path, (*TRAIN_10, TEST_10))
    (train, _), (test, _) = (read_examples(path, files, names, 10) for names in (TRAIN_10, (TEST_10,)))
    return Dataset(CIFAR10.name, "image", train, test, CLASSES_10, mean=MEAN, std=STD, augment=True, files=(str(path),))


def load_cifar100(folder: Path) -> Dataset:
    """50,000 training and 10,000 test images of 100 classes in 20 superclasses; training pads, crops and flips."""
    (path,) = CIFAR100.find(folder)
    files = _read_files(path, (TRAIN_100, TEST_100))
    parts = []
    for name in (TRAIN_100, TEST_100):
        examples, coarse = read_examples(path, files, (name,), 100, num_labels=2)
        wrong = np.flatnonzero(np.array(COARSE)[examples.targets.numpy()] != coarse)
        if len(wrong):
            raise damaged(path, f"{name} has superclass {coarse[wrong[0]]} for class {examples.targets[wrong[0]]}")
        parts.append(examples)
    about: dict[str, Any] = {"mean": MEAN, "std": STD, "augment": True, "files": (str(path),)}
    return Dataset(CIFAR100.name, "image", parts[0], parts[1], CLASSES_100, superclasses=COARSE, **about)


def read_examples(
    path: Path, files: Mapping[str, bytes], names: Sequence[str], num_classes: int, *, num_labels: int = 1
) -> tuple[Examples, NDArray[np.uint8]]:
    """Return the images and classes of these files, concatenated, and the first label of every record."""
    size, parts = num_labels + PIXELS, []
    for name in names:
        if not files[name] or len(files[name]) % size:
            raise damaged(path, f"{name} must hold records of {size:,} bytes, got {len(files[name]):,} bytes")
        parts.append(np.frombuffer(files[name], np.uint8).reshape(-1, size))
        if (highest := parts[-1][:, num_labels - 1].max()) >= num_classes:
            raise damaged(path, f"{name} must have labels 0..{num_classes - 1}, got {highest}")
    records = np.concatenate(parts)
    images, labels = records[:, num_labels:].reshape(-1, 3, 32, 32), records[:, num_labels - 1].astype(np.int64)
    return Examples(torch.from_numpy(images), torch.from_numpy(labels)), records[:, 0]


def _read_files(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    found = {name.name: content for name, content in read_members(path, lambda name: name.name in names)}
    if missing := [name for name in names if name not in found]:
        raise damaged(path, f"it does not hold {', '.join(missing)}")
    return found


def _source(classes: int, groups: str, load: Callable[[Path], Dataset], folder: str, md5: str, size: float) -> Source:
    archive = f"cifar-{classes}-binary"
    return Source(
        f"cifar{classes}",
        f"60,000 colour images, 32 x 32, {groups}",
        load,
        ((folder, f"{archive}.tar.gz", f"{archive}*.tar.gz"),),  # folders before archives, complete before subsets
        f"the folder {folder} or {archive}*.tar.gz",
        (RemoteFile(f"{archive}.tar.gz", f"{TORONTO}/{archive}.tar.gz", f"md5:{md5}", size),),
        Shape(50_000, (3, 32, 32), classes),
    )


CIFAR10 = _source(10, "10 classes", load_cifar10, "cifar-10-batches-bin", "c32a1d4ab5d03f1284b67883e8d87530", 170)
CIFAR100 = _source(
    100, "100 classes in 20 superclasses", load_cifar100, "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8", 169
)
