"""The regimes' data as tensors, and its split into training, held-out and test samples."""

import os
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.default.regimes import Regime
from metacal.lab.data import load_dataset

FOLDERS = "METACAL_TEST_DATA"
"""Environment variable: folders with the data sets, separated as in PATH; the first that has one is taken."""

Samples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Split:
    """Inputs and labels of each part."""

    train: Samples
    held_out: Samples
    test: Samples
    num_classes: int


@lru_cache(maxsize=2)
def load(name: str) -> tuple[Samples, Samples | None]:
    """All samples, standardised, and those of a test set of their own, if there is one."""
    if name in ("digits", "newsgroups"):
        return features_and_labels(name), None
    if name == "cancer":
        raw, labels = load_breast_cancer(return_X_y=True)
        features = torch.from_numpy(raw).float()
        return ((features - features.mean(0)) / features.std(0), torch.from_numpy(labels).long()), None
    parts = load_dataset(name, folder=folder_of(name))
    return tuple((standardised(part.inputs), part.targets) for part in (parts.train, parts.test))  # type: ignore[return-value]


@lru_cache(maxsize=2)
def features_and_labels(dataset: str) -> Samples:
    """Digits or newsgroups: float32 ``(n, d)``, standardised, and int64 ``(n,)``."""
    with threadpool_limits(1):  # more threads sum in other parts, and a rounded feature changes a whole run
        raw, labels = load_digits(return_X_y=True) if dataset == "digits" else newsgroups()
        features = torch.from_numpy(np.ascontiguousarray(raw, dtype=np.float32))
        return (features - features.mean()) / features.std(), torch.from_numpy(np.asarray(labels)).long()


def newsgroups() -> tuple[np.ndarray, np.ndarray]:
    """20 Newsgroups (bydate training part, headers cut) as TF-IDF reduced to 200 dimensions."""
    archive = folder_of("newsgroups") / "20news-bydate.tar.gz"
    texts, groups = [], []
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts
            file = tar.extractfile(member) if member.isfile() and any("train" in part for part in parts) else None
            if file is not None:
                texts.append(file.read().decode("latin-1").partition("\n\n")[2])
                groups.append(parts[-2])
    order = np.argsort([f"{group}/{len(text)}/{text[:80]}" for group, text in zip(groups, texts, strict=True)])
    vectors = TfidfVectorizer(max_features=20000, sublinear_tf=True).fit_transform([texts[i] for i in order])
    reduced = TruncatedSVD(200, random_state=0).fit_transform(vectors)
    names = sorted(set(groups))
    return reduced, np.array([names.index(groups[i]) for i in order])


def folder_of(name: str) -> Path:
    """The first folder that has the data set."""
    folders = [Path(folder) for folder in os.environ.get(FOLDERS, ".").split(os.pathsep)]
    marks = {"svhn": "svhn*train*.mat", "cifar10": "cifar-10-*", "cifar100": "cifar-100*", "fashion_mnist": "*-ubyte*"}
    marks["newsgroups"] = "20news-bydate.tar.gz"
    for folder in folders:
        if any(folder.glob(marks[name])):
            return folder
    raise SystemExit(f"{name} was looked for in {', '.join(map(str, folders))}; set {FOLDERS} to its folder.")


def standardised(images: Tensor) -> Tensor:
    """float32, each channel with mean 0 and deviation 1 over these images."""
    images = images.float() / 255.0
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)


def split(regime: Regime, seed: int) -> Split:
    """One seeded shuffle; noise and imbalance are those of the whole population, test samples included."""
    (inputs, labels), test = load(regime.data)
    generator = torch.Generator().manual_seed(seed)
    num_classes = int(labels.max()) + 1
    if regime.noise:
        is_noise = torch.rand(len(labels), generator=generator) < regime.noise
        labels = torch.where(is_noise, torch.randint(num_classes, labels.shape, generator=generator), labels)
    rows = torch.randperm(len(labels), generator=generator)
    if regime.imbalance > 1.0:
        kept = regime.imbalance ** -(torch.arange(num_classes) / (num_classes - 1))
        rows = rows[torch.rand(len(rows), generator=generator) < kept[labels[rows]]]
    train, held_out, rest = torch.split(
        rows, [regime.train, regime.held_out, len(rows) - regime.train - regime.held_out]
    )
    if test is None:
        test = (inputs[rest], labels[rest])
    scored = (test[0][: regime.test], test[1][: regime.test])
    return Split((inputs[train], labels[train]), (inputs[held_out], labels[held_out]), scored, num_classes)
