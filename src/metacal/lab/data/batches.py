"""Splits a dataset with one seeded shuffle, and yields normalised, augmented batches from memory.

There are no worker processes; the order is a function of the seed. The stratified split is our own: scikit-learn's does
not reserve a sample of every class for later parts, and the splits of stored runs must not change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_inside, check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.seeding import generator, mixed, random_bits

AUGMENTATION, ORDER, SHUFFLE = 1, 2, 3
"""Stream numbers: they separate this module's random numbers from others with the same seed."""
PADDING = 4


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of a dataset that a run uses; ``indices`` are their row numbers in the dataset's training examples."""

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
    """Split off a validation set, and optionally a meta set, from the training examples with one seeded shuffle.

    The validation set is the same with and without a meta set, whenever there are enough samples for both. A size
    overrides a share; ``train_size`` limits the number of remaining samples to train on; ``stratified`` gives every
    part (nearly) the same class frequencies, and at least one sample of every class.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> splits = make_splits(load_dataset("digits"), seed=0, with_meta=True)
        >>> len(splits.train), len(splits.meta), len(splits.val), len(splits.test)
        (1150, 144, 144, 359)
    """
    if not isinstance(dataset, Dataset):
        raise InvalidTypeError(
            f"`dataset` must be a metacal.lab.data.Dataset, got {type(dataset).__name__}; "
            "use torch.utils.data.random_split for torch datasets, scikit-learn's train_test_split for arrays."
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
        given = {"train_size": train_size, "val_size": val_size, "meta_size": meta_size if with_meta else None}
        names = ", ".join(f"`{name}`" for name, size in given.items() if size is not None) or "`val_share`"
        parts = " and ".join(f"{size:,} {part}" for part, size in sizes.items())
        raise InvalidValueError(
            f"{names} must fit the data: {len(targets):,} samples are too few for {parts} and {train_size or 1:,} "
            "training samples."
        )
    sizes["train"] = train_size or left
    indices = _cut(targets, sizes, seed, stratified)
    parts_of = {part: dataset.train.select(index) for part, index in indices.items()}
    return Splits(parts_of["train"], parts_of.get("meta"), parts_of["val"], dataset.test, indices)


def draw_test_set(targets: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw a test set of this share: sorted row numbers ``(train, test)``, stratified if classes are large enough."""
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
    if size is not None:
        check_integer(name.replace("share", "size"), size, 1)
        return int(size)
    check_inside(name, share)
    if not round(share * samples):
        raise InvalidValueError(f"`{name}` must give at least one sample, got {share} of {samples} samples.")
    return round(share * samples)


def _cut(targets: Tensor, sizes: dict[str, int], seed: int, stratified: bool) -> dict[str, Tensor]:
    """Return the row numbers of parts of these sizes, taken from one shuffle in the order of ``sizes``."""
    order = torch.randperm(len(targets), generator=generator(SHUFFLE, seed))
    if not stratified:
        cut = torch.split(order, [*sizes.values(), len(order) - sum(sizes.values())])
        return dict(zip(sizes, cut, strict=False))
    indices = {}
    for number, (part, size) in enumerate(sizes.items()):
        labels = targets[order]
        counts = torch.bincount(labels)
        keep = len(sizes) - 1 - number
        # Leave a sample of each class for a meta set even without one, so that the validation set is the same.
        if part == "val" and "meta" not in sizes:
            spare = counts[counts > 0] - keep - 1
            keep += int(spare.min()) > 0 and int(spare.sum()) >= size
        wanted = torch.from_numpy(quotas(counts.numpy(), size, keep=keep, part=part))
        by_class = torch.argsort(labels, stable=True)
        place = torch.empty_like(labels)  # position of each sample within its class
        place[by_class] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
        taken = place < wanted[labels]
        indices[part], order = order[taken], order[~taken]
    return indices


def quotas(counts: NDArray[np.int64], size: int, *, keep: int, part: str) -> NDArray[np.int64]:
    """Count the samples of each class in a part: proportional, at least one, leaving ``keep`` for later parts.

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
    while found.sum() != size:  # add (or remove) one sample of the class that is furthest off
        missing = found.sum() < size
        movable, gap = (found < most, exact - found) if missing else (found > 1, found - exact)
        gap = np.where(movable, gap, -np.inf)
        if not np.isfinite(gap).any():
            raise InvalidValueError(f"`stratified` must be False here: {part} cannot have {size} samples.")
        found[int(gap.argmax())] += 1 if missing else -1
    return found


class Transform(Protocol):
    """A transform that `Batches` applies to inputs."""

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int) -> Tensor:
        """Return the transformed inputs."""


class Normalise:
    """Scale images to ``(pixel / 255 - mean) / std`` by channel, or vectors to ``(value - mean) / std`` by feature.

    Examples:
        >>> import torch
        >>> images = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
        >>> Normalise([0.5], [0.25])(images).flatten().tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        if len(mean) != len(std) or not all(value > 0.0 for value in std):
            raise InvalidValueError(f"`std` must hold {len(mean)} numbers > 0, got {list(std)}.")
        self.mean, self.std = tuple(mean), tuple(std)

    def __call__(self, inputs: Tensor, *, epoch: int = 0, samples: Tensor | None = None, batch: int = 0) -> Tensor:
        """Return scaled float32 inputs; the other arguments are ignored."""
        if inputs.ndim < 2 or inputs.shape[1] != len(self.mean):
            raise InvalidValueError(
                f"`inputs` must have {len(self.mean)} channels or features in dimension 1, got {tuple(inputs.shape)}."
            )
        white = 255.0 if inputs.dtype is torch.uint8 else 1.0
        scale, shift = _scale_and_shift(self.mean, self.std, white, inputs.device)
        ones = (1,) * (inputs.ndim - 2)
        return inputs.to(torch.float32, copy=True).mul_(scale.view(-1, *ones)).add_(shift.view(-1, *ones))


@lru_cache(maxsize=16)
def _scale_and_shift(
    mean: tuple[float, ...], std: tuple[float, ...], white: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    middle, spread = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
    return (1.0 / (spread * white)).float().to(device), (-middle / spread).float().to(device)


class PadCropFlip:
    """`pad_crop_flip` followed by `Normalise`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, seed: int = 0) -> None:
        check_integer("seed", seed, 0)
        self.normalise, self.seed = Normalise(mean, std), seed

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int = 0) -> Tensor:
        """Return float32 images; the batch number is ignored."""
        return self.normalise(pad_crop_flip(inputs, seed=self.seed, epoch=epoch, samples=samples))


def pad_crop_flip(images: Tensor, *, seed: int, epoch: int, samples: Tensor) -> Tensor:
    """Shift images ``(n, C, H, W)`` by up to 4 pixels in each direction, padded with black, and flip half of them.

    The change to an image is a function of seed, epoch and its row number in the dataset, given by ``samples``.

    Examples:
        >>> import torch
        >>> images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> some = pad_crop_flip(images, seed=0, epoch=3, samples=torch.arange(8))
        >>> alone = pad_crop_flip(images[5:6], seed=0, epoch=3, samples=torch.tensor([5]))
        >>> torch.equal(some[5:6], alone)
        True
    """
    if images.ndim != 4 or samples.shape != images.shape[:1]:
        got = f"{tuple(samples.shape)} for {tuple(images.shape)}"
        raise InvalidValueError(f"`samples` must hold a number for each image (n, C, H, W), got {got}.")
    bits = random_bits(mixed(AUGMENTATION, seed, epoch), samples.to(images.device))
    mirrored = (bits >> 48) & 1
    both = torch.cat((images, images.flip(3)))
    images = both.index_select(0, torch.arange(len(images), device=images.device) + mirrored * len(images))
    # 24 bits times a small number, shifted: an offset from 0 to 2 * PADDING, uniform to 1 in a million.
    down, right = (((bits >> first) & 0xFFFFFF) * (2 * PADDING + 1) >> 24 for first in (0, 24))
    # All rows of the crops are gathered from a view whose row i starts at pixel i of the whole batch: many times faster
    # than indexing pixels.
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    first_rows = _row_starts(padded.shape, images.shape[2], padded.device)
    starts = first_rows + (down * padded.shape[3] + right).view(-1, 1, 1)
    return padded.reshape(-1).unfold(0, images.shape[3], 1).index_select(0, starts.view(-1)).view(images.shape)


@lru_cache(maxsize=8)
def _row_starts(shape: torch.Size, height: int, device: torch.device) -> Tensor:
    """Offsets of the first rows of padded images in memory, ``(n, C, height)``; the same for every batch."""
    count, channels, tall, wide = shape
    planes = torch.arange(count * channels, device=device).view(count, channels, 1) * tall
    return (planes + torch.arange(height, device=device)) * wide


def make_transform(dataset: Dataset, *, training: bool, seed: int = 0) -> Transform | None:
    """Return the transform of a dataset's inputs: scaling, with augmentation in training if the dataset uses it.

    Examples:
        >>> from metacal.lab.data import load_dataset
        >>> type(make_transform(load_dataset("digits"), training=True)).__name__
        'Normalise'
    """
    mean, std = dataset.mean, dataset.std
    if mean is None or std is None:
        if dataset.kind != "image":
            return None
        mean, std = (0.0,) * dataset.input_shape[0], (1.0,) * dataset.input_shape[0]
    return PadCropFlip(mean, std, seed=seed) if training and dataset.augment else Normalise(mean, std)


class Batches:
    """Epochs of batches ``(x, y)``; the order of an epoch is a function of seed and epoch number alone.

    Args:
        examples: the data.
        batch_size: samples per batch, over all processes. The last batch may be smaller; with shuffling, a single
            left-over sample joins the previous batch, because batch normalisation cannot train on one sample.
        seed: of the orders.
        shuffle: a new order every epoch; False keeps the order of the examples.
        transform: applied to the inputs of a batch; see `Transform`.
        device: to move the data to, once; None leaves it in place.
        rank: of this process, which gets its share of every batch.
        world_size: number of processes.

    Examples:
        >>> import torch
        >>> batches = Batches(Examples(torch.arange(5.0), torch.zeros(5, dtype=torch.int64)), 2, seed=0)
        >>> len(batches), [len(y) for x, y in batches.epoch(0)]
        (2, [2, 3])
        >>> whole, resumed = [[x.tolist() for x, y in batches.epoch(7, start=start)] for start in (0, 1)]
        >>> whole[1:] == resumed
        True
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        transform: Transform | None = None,
        device: torch.device | str | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not isinstance(examples, Examples):
            raise InvalidTypeError(f"`examples` must be Examples, got {type(examples).__name__}.")
        if not len(examples):
            raise InvalidValueError("`examples` must hold at least one sample, got none.")
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("rank", rank, 0)):
            check_integer(name, value, least)
        check_integer("world_size", world_size, 1)
        if rank >= world_size:
            raise InvalidValueError(f"`rank` must be below world_size = {world_size}, got {rank}.")
        self.examples = examples.to(device)
        self.batch_size, self.seed, self.shuffle, self.transform = batch_size, seed, shuffle, transform
        self.rank, self.world_size = rank, world_size
        full, rest = divmod(len(examples), batch_size)
        joins = not rest or (shuffle and full > 0 and rest == 1)
        self._batches, smallest = (full, batch_size) if joins else (full + 1, rest)
        if smallest < world_size:
            raise InvalidValueError(
                f"`world_size` must be at most {smallest}, the size of the smallest batch, got {world_size}; "
                "another `batch_size` avoids a small last batch."
            )

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches ``start``, ``start + 1``, ... of an epoch without reading earlier ones."""
        check_integer("number", number, 0)
        check_integer("start", start, 0)
        if start > len(self):
            raise InvalidValueError(f"`start` must be at most the {len(self)} batches of an epoch, got {start}.")
        return self._batches_of(number, start)  # so that arguments are checked at once

    def _batches_of(self, number: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.examples))
        if self.shuffle:  # on the CPU, so that the order is the same on every device
            order = torch.randperm(len(order), generator=generator(ORDER, self.seed, number))
        order = order.to(self.examples.inputs.device)
        for batch in range(start, len(self)):
            whole = order[batch * self.batch_size :][: self.size(batch)]
            low, high = (len(whole) * share // self.world_size for share in (self.rank, self.rank + 1))
            samples = whole[low:high]
            inputs = self.examples.inputs.index_select(0, samples)
            if self.transform is not None:
                inputs = self.transform(inputs, epoch=number, samples=samples, batch=batch)
            yield inputs, self.examples.targets.index_select(0, samples)

    def size(self, batch: int) -> int:
        """Samples in a batch of an epoch, over all processes."""
        return len(self.examples) - batch * self.batch_size if batch == len(self) - 1 else self.batch_size
