"""Train, meta, validation and test sets by one seeded shuffle.

Stratified parts are our own: scikit-learn's do not leave a sample of every class for the parts that follow, and the
splits of stored runs have to stay as they are.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_inside, check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.seeding import generator

SHUFFLE = 3
"""Sets the random numbers of this module apart from those of others with the same seed."""


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of a dataset that a run uses; ``indices`` are their numbers among the dataset's training examples."""

    train: Examples
    meta: Examples | None
    val: Examples
    test: Examples
    indices: dict[str, Tensor]


def make_splits(
    dataset: Dataset,
    *,
    seed: int,
    with_meta: bool,
    val_share: float = 0.1,
    meta_share: float = 0.1,
    val_size: int | None = None,
    meta_size: int | None = None,
    train_size: int | None = None,
    stratified: bool = False,
) -> Splits:
    """Cut a validation set, and a meta set if asked for, from the training examples by one seeded shuffle.

    The validation set is the same with and without a meta set, wherever one could be cut. Without one, its samples are
    trained on. A size takes the place of a share; ``train_size`` trains on only so many of the samples that are left;
    ``stratified`` gives every part (nearly) the same class frequencies, and every class at least one sample.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> splits = make_splits(load_dataset("digits"), seed=0, with_meta=True)
        >>> len(splits.train), len(splits.meta), len(splits.val), len(splits.test)
        (1150, 144, 144, 359)
    """
    if not isinstance(dataset, Dataset):
        raise InvalidTypeError(
            f"`dataset` must be a metacal.lab.data.Dataset, got {type(dataset).__name__}; "
            "torch.utils.data.random_split splits torch datasets, scikit-learn's train_test_split arrays."
        )
    check_integer("seed", seed, 0)
    targets = dataset.train.targets.cpu()
    sizes = {"val": _part_size("val_share", val_share, val_size, len(targets))}
    if with_meta:
        sizes["meta"] = _part_size("meta_share", meta_share, meta_size, len(targets))
    left = len(targets) - sum(sizes.values())
    if train_size is not None:
        check_integer("train_size", train_size, 1)
    if left < (train_size or 1):
        parts = " and ".join(f"{size:,} {part}" for part, size in sizes.items())
        given = {"train_size": train_size, "val_size": val_size, "meta_size": meta_size if with_meta else None}
        asked = [name for name, size in given.items() if size is not None] or ["val_share"]
        raise InvalidValueError(
            f"{', '.join(f'`{name}`' for name in asked)} must leave room: {len(targets):,} samples cannot give {parts} "
            f"and {train_size or 1:,} training samples."
        )
    sizes["train"] = train_size or left
    indices = _cut(targets, sizes, seed, stratified)
    parts_of = {part: dataset.train.select(index) for part, index in indices.items()}
    return Splits(parts_of["train"], parts_of.get("meta"), parts_of["val"], dataset.test, indices)


def draw_test_set(targets: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted sample numbers ``(train, test)`` of data that comes without a test set: a seeded share.

    It is stratified where the classes have samples enough for that.
    """
    check_integer("seed", seed, 0)
    size = _part_size("test_share", share, None, len(targets))
    sizes = {"test": size, "train": len(targets) - size}
    if not sizes["train"]:
        raise InvalidValueError(f"`test_share` must leave a sample to train on, got {share} of {len(targets)} samples.")
    counts = torch.unique(targets, return_counts=True)[1]
    enough = int(targets.min()) >= 0 and int(counts.min()) > 1 and min(sizes.values()) >= len(counts)
    indices = _cut(targets, sizes, seed, stratified=enough)
    return indices["train"].sort().values, indices["test"].sort().values


def _part_size(name: str, share: float, size: int | None, samples: int) -> int:
    """Number of samples of a part, given by size or by a share of this name."""
    if size is not None:
        check_integer(name.replace("share", "size"), size, 1)
        return int(size)
    check_inside(name, share)
    found = round(share * samples)
    if not found:
        raise InvalidValueError(f"`{name}` must give at least one sample, got {share} of {samples} samples.")
    return found


def _cut(targets: Tensor, sizes: dict[str, int], seed: int, stratified: bool) -> dict[str, Tensor]:
    """Sample numbers of parts of these sizes: one shuffle, dealt out in the order of ``sizes``."""
    order = torch.randperm(len(targets), generator=generator(SHUFFLE, seed))
    if not stratified:
        cut = torch.split(order, [*sizes.values(), len(order) - sum(sizes.values())])
        return dict(zip(sizes, cut, strict=False))
    indices = {}
    for number, (part, size) in enumerate(sizes.items()):
        labels = targets[order]
        counts = torch.bincount(labels)
        keep = len(sizes) - 1 - number
        # One of each class is left for a meta set even where none is cut, or the validation set would not be the same.
        if part == "val" and "meta" not in sizes:
            spare = counts[counts > 0] - keep - 1
            keep += int(spare.min()) > 0 and int(spare.sum()) >= size
        wanted = quotas(counts.numpy(), size, keep=keep, part=part)
        taken = _first_of_each_class(labels, torch.from_numpy(wanted))
        indices[part], order = order[taken], order[~taken]
    return indices


def quotas(counts: NDArray[np.int64], size: int, *, keep: int, part: str) -> NDArray[np.int64]:
    """Samples of each class in a part of ``size``: in proportion, at least one, leaving ``keep`` for the later parts.

    An absent class gets none; ``part`` is its name, for messages.

    Examples:
        >>> quotas(np.array([6, 3, 1, 0]), 5, keep=0, part="val").tolist()
        [3, 1, 1, 0]
    """
    present = counts > 0
    rarest = int(counts[present].min(initial=size + keep + 1))
    if rarest < keep + 1:
        raise InvalidValueError(
            f"`stratified` must be False here: class {int(np.flatnonzero(counts == rarest)[0])} has {rarest} samples, "
            f"too few for one in each part."
        )
    if size < int(present.sum()):
        raise InvalidValueError(
            f"`stratified` must be False here: {size} samples in {part} are too few for one of each of "
            f"{int(present.sum())} classes."
        )
    exact = counts * (size / counts.sum())
    most = np.where(present, counts - keep, 0)
    found: NDArray[np.int64] = np.clip(np.floor(exact).astype(np.int64), present.astype(np.int64), most)
    while found.sum() != size:  # one sample at a time to (or from) the class that is furthest off
        missing = found.sum() < size
        movable, apart = (found < most, exact - found) if missing else (found > 1, found - exact)
        lack = np.where(movable, apart, -np.inf)
        if not np.isfinite(lack).any():
            raise InvalidValueError(f"`stratified` must be False here: {part} cannot have {size} samples.")
        found[int(lack.argmax())] += 1 if missing else -1
    return found


def _first_of_each_class(labels: Tensor, wanted: Tensor) -> Tensor:
    """Mask of the first ``wanted[k]`` samples of every class k."""
    by_class = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels)
    place = torch.empty_like(labels)
    place[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    return place < wanted[labels]
