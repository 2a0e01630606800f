"""`MetaStream`: meta batches without end, in a seeded order, that can be taken up where they were left."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

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
        collate_fn: makes a batch of samples; None is torch's.
        num_workers: of the loader.
        pin_memory: of the loader.
        seed: of the order.
        rank: of this process.
        ranks: processes in all.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise InvalidTypeError(f"`meta` must be a dataset with a length, got {type(dataset).__name__}.")
        if not len(dataset):
            raise InvalidValueError("`meta` must hold at least one sample, got none.")
        check_integer("meta_batch_size", batch_size, 1)
        self.dataset, self.batch_size, self.seed, self.rank, self.ranks = dataset, batch_size, seed, rank, ranks
        self.collate_fn, self.num_workers, self.pin_memory = collate_fn, num_workers, pin_memory
        self.drawn = 0
        self._batches: Iterator[Any] | None = None

    @classmethod
    def of_loader(cls, loader: DataLoader[Any], **place: Any) -> "MetaStream | Iterator[Any]":
        """The same batches as a loader's, in our order; a loader over a stream is gone through again and again."""
        if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
            return cycle(loader)
        return cls(
            loader.dataset,
            loader.batch_size,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            **place,
        )

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
            self._batches = iter(
                DataLoader(
                    self.dataset,
                    batch_sampler=order,
                    collate_fn=self.collate_fn,
                    num_workers=self.num_workers,
                    pin_memory=self.pin_memory,
                )
            )
        self.drawn += 1
        return next(self._batches)

    def go_to(self, drawn: int) -> None:
        """Go on as if so many batches had been drawn."""
        self.drawn, self._batches = drawn, None
