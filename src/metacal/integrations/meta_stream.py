"""`MetaStream`: meta batches without end, in a seeded order, that can be taken up where they were left."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)

from metacal.data import cycle
from metacal.data.seeding import generator
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_integer

ORDER = 7
"""Sets the random numbers of this module apart from those of others with the same seed."""


class EndlessOrder(Sampler[list[int]]):
    """Sample numbers of batches without end: every pass in a new order, cut among the ranks.

    All batches are full: the last one of a pass is filled up from its beginning.

    Args:
        length: samples.
        batch_size: samples in a batch of one rank.
        seed: of the orders.
        start: batches to leave out at first.
        rank: of this process.
        ranks: processes in all.

    Examples:
        >>> first = iter(EndlessOrder(5, 2, seed=0))
        >>> [len(next(first)) for _ in range(4)]
        [2, 2, 2, 2]
    """

    def __init__(self, length: int, batch_size: int, seed: int, start: int = 0, rank: int = 0, ranks: int = 1) -> None:
        self.length, self.batch_size, self.seed, self.start = length, min(batch_size, length), seed, start
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[list[int]]:
        joint = self.batch_size * self.ranks
        batches_a_pass = -(-self.length // joint)
        number = self.start
        order, known = torch.arange(0), -1
        while True:
            in_pass, place = divmod(number, batches_a_pass)
            if in_pass != known:
                order, known = torch.randperm(self.length, generator=generator(ORDER, self.seed, in_pass)), in_pass
            first = place * joint + self.rank * self.batch_size
            yield order[(first + torch.arange(self.batch_size)) % self.length].tolist()
            number += 1


class MetaStream(Iterator[Any]):
    """Batches of a dataset without end.

    Args:
        dataset: map-style.
        batch_size: samples in a batch (of each rank).
        seed: of the order.
        rank: of this process.
        ranks: processes in all.
        **loading: of the `DataLoader`: ``collate_fn``, ``num_workers``, ``pin_memory``, ...
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, seed: int = 0, rank: int = 0, ranks: int = 1, **loading: Any
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise InvalidTypeError(f"`meta` must be a dataset with a length, got {type(dataset).__name__}.")
        if not len(dataset):
            raise InvalidValueError("`meta` must hold at least one sample, got none.")
        check_integer("meta_batch_size", batch_size, 1)
        self.dataset, self.batch_size, self.seed, self.rank, self.ranks = dataset, batch_size, seed, rank, ranks
        self.loading, self.drawn = loading, 0
        self._batches: Iterator[Any] | None = None

    @classmethod
    def of_loader(cls, loader: DataLoader[Any], **place: Any) -> "MetaStream | Iterator[Any]":
        """The samples of a loader in our order, in batches of its size, loaded as it does.

        A loader whose samples are not a known part of a dataset, one over a stream or with a sampler of its own (but
        for torch's random, sequential, distributed and subset ones), is gone through again and again as it is.

        Examples:
            >>> import torch
            >>> from torch.utils.data import SubsetRandomSampler, TensorDataset
            >>> data = TensorDataset(torch.arange(100))
            >>> stream = MetaStream.of_loader(DataLoader(data, batch_size=3, sampler=SubsetRandomSampler([97, 98, 99])))
            >>> sorted(next(stream)[0].tolist())
            [97, 98, 99]
        """
        samples = _samples_of(loader)
        if samples is None or loader.batch_size is None:
            return cycle(loader)
        return cls(samples, loader.batch_size, **loading_of(loader), **place)

    def __next__(self) -> Any:
        if self._batches is None:
            order = EndlessOrder(
                len(self.dataset),
                self.batch_size,
                self.seed,
                self.drawn,
                self.rank,
                self.ranks,
            )
            self._batches = iter(DataLoader(self.dataset, batch_sampler=order, **self.loading))
        self.drawn += 1
        return next(self._batches)

    def go_to(self, drawn: int) -> None:
        """Go on as if so many batches had been drawn."""
        self.drawn, self._batches = drawn, None


def loading_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """How a loader loads, whatever the samples and their order."""
    return {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }


def _samples_of(loader: DataLoader[Any]) -> Any:
    """The dataset that a loader goes through once per pass; None if its sampler does not tell.

    Subclasses of torch's samplers may do anything, and a sampler may have been made for a shorter dataset.
    """
    if isinstance(loader.dataset, IterableDataset):
        return None
    sampler: Any = loader.sampler
    if type(sampler) is SubsetRandomSampler:
        return Subset(loader.dataset, sampler.indices)
    source: Any = None
    if type(sampler) in (RandomSampler, SequentialSampler):
        source = sampler.data_source
    elif type(sampler) is DistributedSampler:
        source = sampler.dataset
    whole: Any = loader.dataset
    is_whole = source is whole or (source is not None and len(source) == len(whole))
    return whole if is_whole else None
