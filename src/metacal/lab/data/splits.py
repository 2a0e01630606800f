"""Train, meta, validation and test sets by one seeded shuffle; `split_off` for those who have no meta set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Subset, TensorDataset

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_inside, check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.lab.data.stratify import quotas
from metacal.seeding import generator

SHUFFLE = 3
"""Sets the random numbers of this module apart from those of others with the same seed."""


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of a dataset that a run uses.

    Attributes:
        train: examples to train on.
        meta: examples that hyper-parameters are learned on; None without.
        val: examples that the checkpoint is chosen on.
        test: the dataset's test examples.
        indices: sample numbers of ``train``, ``val`` and (with meta) ``meta`` in the dataset's training examples.
    """

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
    trained on.

    Args:
        dataset: what to split; its test examples stay as they are.
        seed: of the shuffle.
        with_meta: whether to cut a meta set too.
        val_share: share of the training examples for validation.
        meta_share: share of the training examples for the meta set.
        val_size: number of validation samples; takes the place of ``val_share``.
        meta_size: number of meta samples; takes the place of ``meta_share``.
        train_size: train on only so many of the samples that are left.
        stratified: give every part (nearly) the same class frequencies, and every class at least one sample.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> splits = make_splits(load_dataset("digits"), seed=0, with_meta=True)
        >>> len(splits.train), len(splits.meta), len(splits.val), len(splits.test)
        (1150, 144, 144, 359)
    """
    if not isinstance(dataset, Dataset):
        raise InvalidTypeError(
            f"`dataset` must be a metacal.lab.data.Dataset, got {type(dataset).__name__}; "
            "`split_off` splits torch datasets and arrays."
        )
    check_integer("seed", seed, 0)
    targets = dataset.train.targets.cpu()
    sizes = {"val": _part_size("val", val_share, val_size, len(targets))}
    if with_meta:
        sizes["meta"] = _part_size("meta", meta_share, meta_size, len(targets))
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


def split_off(dataset: Any, share: float, seed: int = 0, stratified: bool = False) -> tuple[Any, Any]:
    """Split a dataset in two by a seeded shuffle, for those who have no meta set.

    Args:
        dataset: a torch dataset (gives two Subsets), `Examples`, or a pair ``(inputs, targets)`` of tensors or arrays.
        share: of the samples that go to the second part, in (0, 1).
        seed: of the shuffle.
        stratified: give both parts (nearly) the same class frequencies. A torch dataset that has neither ``targets``
            nor ``labels`` is then read once, for its labels.

    Returns:
        ``(train, meta)``, of the kind that came in.

    Examples:
        >>> import torch
        >>> inputs, targets = torch.arange(10.0), torch.tensor([0, 1] * 5)
        >>> (x, y), (x_meta, y_meta) = split_off((inputs, targets), 0.2, stratified=True)
        >>> len(y), y_meta.tolist()
        (8, [0, 1])
    """
    check_inside("share", share)
    check_integer("seed", seed, 0)
    if isinstance(dataset, Dataset):
        raise InvalidTypeError("`dataset` must not be a metacal.lab.data.Dataset: `make_splits` splits those.")
    samples = len(_inputs_and_targets(dataset)[1]) if isinstance(dataset, tuple | list) else _length(dataset)
    targets = _labels(dataset) if stratified else torch.zeros(samples, dtype=torch.int64)
    sizes = {"meta": _part_size("share", share, None, samples)}
    sizes["train"] = samples - sizes["meta"]
    if not sizes["train"]:
        raise InvalidValueError(f"`share` must leave a sample to train on, got {share} of {samples} samples.")
    indices = _cut(targets, sizes, seed, stratified)
    train, meta = (_taken(dataset, indices[part].sort().values) for part in ("train", "meta"))
    return train, meta


def draw_test_set(targets: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted sample numbers ``(train, test)`` of data that comes without a test set: a seeded share.

    It is stratified where the classes have samples enough for that.
    """
    check_inside("test_share", share)
    check_integer("seed", seed, 0)
    sizes = {"test": _part_size("test_share", share, None, len(targets))}
    sizes["train"] = len(targets) - sizes["test"]
    if not sizes["train"]:
        raise InvalidValueError(f"`test_share` must leave a sample to train on, got {share} of {len(targets)} samples.")
    counts = torch.bincount(targets) if int(targets.min()) >= 0 else torch.zeros(1, dtype=torch.int64)
    counts = counts[counts > 0]
    enough = len(counts) > 0 and int(counts.min()) > 1 and min(sizes.values()) >= len(counts)
    indices = _cut(targets, sizes, seed, stratified=enough)
    return indices["train"].sort().values, indices["test"].sort().values


def _part_size(part: str, share: float, size: int | None, samples: int) -> int:
    """Number of samples of a part, given by share or by size."""
    if size is not None:
        check_integer(f"{part}_size", size, 1)
        return int(size)
    name = f"{part}_share" if part in ("val", "meta") else part
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
        if part == "val" and "meta" not in sizes and _can_keep(counts, keep + 1, size):
            keep += 1
        wanted = quotas(counts.numpy(), size, keep=keep, part=part)
        taken = _first_of_each_class(labels, torch.from_numpy(wanted))
        indices[part], order = order[taken], order[~taken]
    return indices


def _can_keep(counts: Tensor, keep: int, size: int) -> bool:
    """Whether ``size`` samples, at least one of each class, leave ``keep`` of each."""
    present = counts[counts > 0]
    return int(present.min()) > keep and int((present - keep).sum()) >= size


def _first_of_each_class(labels: Tensor, wanted: Tensor) -> Tensor:
    """Mask of the first ``wanted[k]`` samples of every class k."""
    by_class = torch.argsort(labels, stable=True)
    starts = torch.cumsum(torch.bincount(labels), 0) - torch.bincount(labels)
    place = torch.empty_like(labels)
    place[by_class] = torch.arange(len(labels)) - starts[labels[by_class]]
    return place < wanted[labels]


def _length(dataset: Any) -> int:
    if not hasattr(dataset, "__len__") or not isinstance(dataset, Examples | TorchDataset):
        raise InvalidTypeError(
            "`dataset` must be a torch dataset with a length, Examples, or a pair (inputs, targets), got "
            f"{type(dataset).__name__}."
        )
    return len(dataset)  # type: ignore[arg-type]


def _inputs_and_targets(pair: Sequence[Any]) -> tuple[Any, Any]:
    if len(pair) != 2 or len(pair[0]) != len(pair[1]):
        found = f"{len(pair)} parts" if len(pair) != 2 else f"lengths {len(pair[0])} and {len(pair[1])}"
        raise InvalidValueError(f"`dataset` must be a pair (inputs, targets) of one length, got {found}.")
    return pair[0], pair[1]


def _labels(dataset: Any) -> Tensor:
    """Labels of any of the datasets that `split_off` takes, on the CPU, as class numbers 0..K-1."""
    if isinstance(dataset, tuple | list):
        found = _inputs_and_targets(dataset)[1]
    elif isinstance(dataset, TensorDataset):
        found = dataset.tensors[-1]
    elif isinstance(dataset, Subset):
        found = _labels(dataset.dataset)[torch.as_tensor(dataset.indices)]
    else:
        found = next((getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None)
        if found is None:
            found = [dataset[sample][1] for sample in range(len(dataset))]
    values = found.cpu() if isinstance(found, Tensor) else torch.as_tensor(np.asarray(found))
    numbers: Tensor = torch.unique(values, return_inverse=True)[1]
    return numbers.reshape(-1)


def _taken(dataset: Any, index: Tensor) -> Any:
    if isinstance(dataset, tuple | list):
        return tuple(_rows(part, index) for part in _inputs_and_targets(dataset))
    return dataset.select(index) if isinstance(dataset, Examples) else Subset(dataset, index.tolist())


def _rows(values: Any, index: Tensor) -> Any:
    if isinstance(values, Tensor):
        return values[index.to(values.device)]
    return values[index.numpy()] if isinstance(values, np.ndarray) else [values[i] for i in index.tolist()]
