"""`MetaStream`: an endless stream of held-out batches in a seeded order, which can be resumed anywhere."""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    get_worker_info,
)

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.metalearning.gather import own_rank, own_seed, world_size
from metacal.metalearning.model_calls import Batch, fresh_random_stream, seed_all
from metacal.seeding import generator

ORDER = 7
"""Sets the random numbers of this module apart from those of others with the same seed."""

LOADING = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "prefetch_factor", "persistent_workers"),
)

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
"""Where the labels of a batch that is a dictionary are, in this order."""


class EndlessOrder(Sampler[list[int]]):
    """Endless sample numbers of batches from ``start`` on: a new order in every pass, split over the ranks.

    All batches are full: the last one of a pass is filled up from its beginning.
    """

    def __init__(self, length: int, batch_size: int, seed: int, start: int = 0) -> None:
        self.length, self.batch_size, self.seed, self.start = length, min(batch_size, length), seed, start

    def __iter__(self) -> Iterator[list[int]]:
        joint = self.batch_size * world_size()
        batches_a_pass = -(-self.length // joint)
        order, known = torch.arange(0), -1
        for number in itertools.count(self.start):
            in_pass, place = divmod(number, batches_a_pass)
            if in_pass != known:
                order, known = torch.randperm(self.length, generator=generator(ORDER, self.seed, in_pass)), in_pass
            first = place * joint + own_rank() * self.batch_size
            yield order[(first + torch.arange(self.batch_size)) % self.length].tolist()


class NumberedBatches(Dataset[Any]):
    """Samples by the number of their batch, which alone determines a worker's random numbers, and their own."""

    def __init__(self, samples: Any, seed: int) -> None:
        self.samples, self.seed = samples, own_seed(seed)

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        number, *wanted = numbers
        if get_worker_info() is not None:
            seed_all(self.seed + number)
        together = getattr(self.samples, "__getitems__", None)
        return together(wanted) if callable(together) else [self.samples[each] for each in wanted]


class MetaStream(Iterator[Batch]):
    """Endless batches ``(x, y)`` of held-out samples.

    The samples of a `DataLoader` come in an order of our own, reshuffled each pass, in batches of its size, loaded as
    it does. What cannot be reordered (a loader with a sampler of its own or over a stream, any other iterable of
    batches) is gone through again and again as it is. Random numbers that are drawn meanwhile are a function of the
    seed and of the place in the stream, ``drawn``; the caller's stay as they are. ``split`` makes input and labels of a
    batch.
    """

    def __init__(self, meta: Any, *, seed: int = 0, split: Callable[[Any], Batch] | None = None) -> None:
        if isinstance(meta, Iterator):
            raise InvalidTypeError(
                f"`meta` must be a loader or another iterable of batches that can be gone through again and again, got "
                f"{type(meta).__name__}, which ends; pass the loader itself."
            )
        if not isinstance(meta, Iterable) or isinstance(meta, (str, bytes, Tensor, Mapping)):
            raise InvalidTypeError(f"`meta` must be a loader or an iterable of batches, got {type(meta).__name__}.")
        # Accelerate's loaders tell the training loop which of them is in use: that must stay the training's.
        self.meta: Any = apart(getattr(meta, "base_dataloader", meta))
        self.seed, self.drawn, self.split = seed, 0, split or split_batch
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Batch:
        if self._batches is None:
            self._batches = self._open()
        with self._random_numbers_of(self.drawn):
            batch = next(self._batches)
        self.drawn += 1
        return self.split(batch)

    @property
    def samples(self) -> int | None:
        """The number of samples, if known without iterating."""
        samples = samples_of(self.meta)
        if samples is not None:
            return len(samples)
        return sum(len(self.split(batch)[1]) for batch in self.meta) if isinstance(self.meta, (list, tuple)) else None

    def go_to(self, drawn: int) -> None:
        """Continue as if this many batches had been drawn."""
        self.drawn, self._batches = drawn, None

    def once(self) -> Iterator[Batch]:
        """Yield every sample once, in order; under DDP this process's share."""
        samples = samples_of(self.meta)
        if samples is None:
            return map(self.split, apart(self.meta))
        own = Subset(samples, range(own_rank(), len(samples), world_size()))
        return map(self.split, self._load(own, batch_size=batches_of(self.meta).batch_size))

    def peek(self) -> Batch:
        """Return a few samples without drawing from the stream."""
        samples = samples_of(self.meta)
        with self._random_numbers_of(0):
            if samples is None:
                return self.split(next(cycle(apart(self.meta))))
            return self.split(self.meta.collate_fn([samples[number] for number in range(min(2, len(samples)))]))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_batches": None}

    def _open(self) -> Iterator[Any]:
        """Open the batches from the current position on."""
        if callable(getattr(self.meta, "epoch", None)):  # knows its passes by number
            return _passes(self.meta, self.drawn)
        samples = samples_of(self.meta)
        if samples is not None:
            order = EndlessOrder(len(samples), batches_of(self.meta).batch_size, self.seed, self.drawn)
            with self._random_numbers_of(0):  # one is drawn for workers
                numbered = ([number, *batch] for number, batch in enumerate(order, self.drawn))
                return iter(self._load(NumberedBatches(samples, self.seed), batch_sampler=numbered))
        batches = cycle(apart(self.meta))
        for number in range(self.drawn):  # its order may be drawn at random: drawn as before
            with self._random_numbers_of(number):
                next(batches)
        return batches

    def _load(self, samples: Any, **batches: Any) -> DataLoader[Any]:
        """Load samples as the user's loader does."""
        return DataLoader(samples, **batches, **{name: getattr(self.meta, name) for name in LOADING})

    def _random_numbers_of(self, number: int) -> AbstractContextManager[None]:
        """Use the stream's own random numbers for a batch; the caller's state is restored."""
        is_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return fresh_random_stream(own_seed(self.seed + number), torch.device("cuda" if is_cuda else "cpu"))


def split_batch(batch: Any) -> Batch:
    """Split a batch into model input and labels.

    A pair is that already; of a longer tuple the last is the labels; a dictionary holds them under a usual name.

    Examples:
        >>> import torch
        >>> split_batch({"pixels": 1, "label": torch.tensor([1, 0])})
        ({'pixels': 1}, tensor([1, 0]))
    """
    x: Any
    if isinstance(batch, Mapping):
        key = next((key for key in LABEL_KEYS if key in batch), None)
        if key is None:
            raise InvalidValueError(f"`meta` must give batches with labels; {describe_batch(batch)}")
        x, labels = {name: value for name, value in batch.items() if name != key}, batch[key]
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        x, labels = (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]
    else:
        raise InvalidTypeError(f"`meta` must give batches (x, y); {describe_batch(batch)}")
    if not isinstance(labels, Tensor):
        raise InvalidTypeError(f"`meta targets` must be a tensor of class labels, got {type(labels).__name__}.")
    if not labels.numel():
        raise InvalidValueError("`meta targets` must hold at least one sample, got none.")
    return x, labels


def describe_batch(batch: Any) -> str:
    """A sentence that describes a batch, for messages."""
    if isinstance(batch, Mapping):
        return f"its keys are {', '.join(map(repr, batch))}."
    length = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
    return f"a batch is a {type(batch).__name__}{length}."


def cycle(batches: Iterable[Any]) -> Iterator[Any]:
    """Iterate over batches endlessly: each pass restarts the loader, so that it reshuffles, without caching."""
    while True:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty:
            raise InvalidValueError("`meta` must give at least one batch per pass, got none.")


def apart(loader: Any) -> Any:
    """Return a loader to go through beside another pass over the given one; persistent workers serve one at a time."""
    if not isinstance(loader, DataLoader) or not loader.persistent_workers:
        return loader
    own = copy.copy(loader)
    own._iterator = None
    return own


def _passes(batches: Any, start: int) -> Iterator[Any]:
    number, place = divmod(start, len(batches))
    while True:
        yield from batches.epoch(number, start=place)
        number, place = number + 1, 0


def batches_of(loader: DataLoader[Any]) -> Any:
    """Return the batch sampler of a loader; that of all samples if Accelerate has taken this process's share."""
    batches: Any = loader.batch_sampler
    return batches.batch_sampler if type(batches).__name__ == "BatchSamplerShard" else batches


def samples_of(loader: Any) -> Any:
    """Return the samples of a loader as a dataset; None if it is unknown.

    Subclasses of torch's loaders and samplers may do anything, and a sampler may be one of a shorter dataset.
    """
    if not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__:
        return None
    batches = batches_of(loader)
    if type(batches) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
        return None
    sampler: Any = batches.sampler
    whole: Any = loader.dataset
    if type(sampler) is SubsetRandomSampler and len(sampler):
        return Subset(whole, sampler.indices)
    source: Any = None
    if type(sampler) in (RandomSampler, SequentialSampler) or type(sampler).__name__ == "SeedableRandomSampler":
        source = sampler.data_source
    elif type(sampler) is DistributedSampler:
        source = sampler.dataset
    return whole if source is not None and len(source) == len(whole) and len(whole) else None
