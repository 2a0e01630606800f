"""Batches of examples in memory, normalised and augmented: no worker processes, orders that follow from the seed."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_integer
from metacal.lab.data.dataset import Dataset, Examples
from metacal.seeding import generator, mixed, random_bits

AUGMENTATION, ORDER = 1, 2
"""Set the random numbers of this module apart from those of others with the same seed."""
PADDING = 4


class Transform(Protocol):
    """What `Batches` calls on the inputs of a batch."""

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int) -> Tensor:
        """Inputs as the network gets them."""


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
        self._ready: dict[tuple[torch.device, bool], tuple[Tensor, Tensor]] = {}

    def __call__(self, inputs: Tensor, *, epoch: int = 0, samples: Tensor | None = None, batch: int = 0) -> Tensor:
        """float32 inputs, scaled; epoch, sample and batch numbers play no part."""
        if inputs.ndim < 2 or inputs.shape[1] != len(self.mean):
            raise InvalidValueError(
                f"`inputs` must have {len(self.mean)} channels or features in dimension 1, got {tuple(inputs.shape)}."
            )
        scale, shift = self._scale_and_shift(inputs.device, inputs.dtype is torch.uint8)
        ones = (1,) * (inputs.ndim - 2)
        wide = inputs.to(torch.float32, copy=True)
        return wide.mul_(scale.view(-1, *ones)).add_(shift.view(-1, *ones))

    def _scale_and_shift(self, device: torch.device, is_image: bool) -> tuple[Tensor, Tensor]:
        if (device, is_image) not in self._ready:
            mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
            scale = 1.0 / (std * (255.0 if is_image else 1.0))
            self._ready[device, is_image] = (scale.float().to(device), (-mean / std).float().to(device))
        return self._ready[device, is_image]


class PadCropFlip:
    """`pad_crop_flip`, then scale as `Normalise` does."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, seed: int = 0) -> None:
        check_integer("seed", seed, 0)
        self.normalise, self.seed = Normalise(mean, std), seed

    def __call__(self, inputs: Tensor, *, epoch: int, samples: Tensor, batch: int = 0) -> Tensor:
        """float32 images; the number of the batch plays no part."""
        return self.normalise(pad_crop_flip(inputs, seed=self.seed, epoch=epoch, samples=samples))


def pad_crop_flip(images: Tensor, *, seed: int, epoch: int, samples: Tensor) -> Tensor:
    """Images ``(n, C, H, W)`` moved by up to 4 pixels each way, black beyond the edge, half of them flipped.

    What happens to an image follows from seed, epoch and its number in the dataset, given by ``samples``.

    Examples:
        >>> import torch
        >>> images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> some = pad_crop_flip(images, seed=0, epoch=3, samples=torch.arange(8))
        >>> alone = pad_crop_flip(images[5:6], seed=0, epoch=3, samples=torch.tensor([5]))
        >>> torch.equal(some[5:6], alone)
        True
    """
    if images.ndim != 4 or samples.shape != images.shape[:1]:
        raise InvalidValueError(
            f"`samples` must hold a number for each image (n, C, H, W), got {tuple(samples.shape)} for "
            f"{tuple(images.shape)}."
        )
    bits = random_bits(mixed(AUGMENTATION, seed, epoch), samples.to(images.device))
    mirrored = (bits >> 48) & 1
    both = torch.cat((images, images.flip(3)))
    images = both.index_select(0, torch.arange(len(images), device=images.device) + mirrored * len(images))
    # 24 bits times a small number, shifted: a place from 0 to 2 * PADDING, even to 1 in a million.
    down, right = (((bits >> first) & 0xFFFFFF) * (2 * PADDING + 1) >> 24 for first in (0, 24))
    # A row of a crop is W neighbours in memory. All rows are fetched at once from a view in which row i starts at pixel
    # i of the whole batch: many times faster than to index pixels.
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    first_rows = _row_starts(padded.shape, images.shape[2], padded.device)
    starts = first_rows + (down * padded.shape[3] + right).view(-1, 1, 1)
    return padded.reshape(-1).unfold(0, images.shape[3], 1).index_select(0, starts.view(-1)).view(images.shape)


@lru_cache(maxsize=8)
def _row_starts(shape: torch.Size, height: int, device: torch.device) -> Tensor:
    """Where the first rows of padded images start in memory, ``(n, C, height)``; the same for every batch."""
    count, channels, tall, wide = shape
    planes = torch.arange(count * channels, device=device).view(count, channels, 1) * tall
    return (planes + torch.arange(height, device=device)) * wide


def make_transform(dataset: Dataset, *, training: bool, seed: int = 0) -> Transform | None:
    """What `Batches` should do to a dataset's inputs: augment and scale, scale only, or nothing (None).

    The dataset's ``augment``, ``mean`` and ``std`` decide; validation, meta and test sets are never augmented.

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
        batch_size: samples in a batch, over all processes. The last one may be smaller; with shuffling, a single sample
            that is left over joins the batch before, because batch normalisation cannot train on it alone.
        seed: of the orders.
        shuffle: a new order every epoch; False keeps the order of the examples.
        transform: what is done to the inputs of a batch; see `Transform`.
        device: where the data is put, once; None leaves it where it is.
        rank: of this process, which gets its share of every batch: together they are those of a single process.
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
        check_integer("batch_size", batch_size, 1)
        check_integer("seed", seed, 0)
        check_integer("world_size", world_size, 1)
        check_integer("rank", rank, 0)
        if rank >= world_size:
            raise InvalidValueError(f"`rank` must be below world_size = {world_size}, got {rank}.")
        self.examples = examples.to(device)
        self.batch_size, self.seed, self.shuffle, self.transform = batch_size, seed, shuffle, transform
        self.rank, self.world_size = rank, world_size
        full, rest = divmod(len(examples), batch_size)
        joins = shuffle and full > 0 and rest == 1
        self._batches = full if joins or not rest else full + 1
        smallest = batch_size if joins or not rest else rest
        if smallest < world_size:
            raise InvalidValueError(
                f"`world_size` must be at most {smallest}, the size of the smallest batch, got {world_size}; "
                "another `batch_size` leaves no small batch."
            )

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches ``start``, ``start + 1``, ... of an epoch; nothing is read for those before."""
        check_integer("number", number, 0)
        check_integer("start", start, 0)
        if start > len(self):
            raise InvalidValueError(f"`start` must be at most the {len(self)} batches of an epoch, got {start}.")
        return self._give(number, start)  # arguments are checked before the first batch is asked for

    def _give(self, number: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        samples_of = self._plan(number)
        for batch in range(start, len(self)):
            whole = samples_of(batch)
            low, high = (len(whole) * share // self.world_size for share in (self.rank, self.rank + 1))
            samples = whole[low:high]
            inputs = self.examples.inputs.index_select(0, samples)
            if self.transform is not None:
                inputs = self.transform(inputs, epoch=number, samples=samples, batch=batch)
            yield inputs, self.examples.targets.index_select(0, samples)

    def size(self, number: int, batch: int) -> int:
        """Samples in a batch of an epoch, over all processes."""
        return len(self.examples) - batch * self.batch_size if batch == len(self) - 1 else self.batch_size

    def _plan(self, number: int) -> Callable[[int], Tensor]:
        """Sample numbers of every batch of an epoch, by its number; drawn on the CPU, so the same for every device."""
        count, random = len(self.examples), generator(ORDER, self.seed, number)
        order = torch.randperm(count, generator=random) if self.shuffle else torch.arange(count)
        order = order.to(self.examples.inputs.device)
        return lambda batch: order[batch * self.batch_size :][: self.size(number, batch)]
