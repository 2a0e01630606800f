"""Batches of examples in memory: no worker processes, the data on its device once, orders that follow from the seed."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_integer
from metacal.lab.data.augmentation import Transform
from metacal.lab.data.dataset import Examples
from metacal.seeding import generator

ORDER = 2
"""Sets the random numbers of this module apart from those of others with the same seed."""


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
        drop_last: leave out a last batch that is not full.
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
        drop_last: bool = False,
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
        joins = shuffle and not drop_last and full > 0 and rest == 1
        self._batches = full if drop_last or joins or not rest else full + 1
        self._used = full * batch_size if drop_last else len(examples)
        smallest = batch_size if full and (drop_last or joins or not rest) else rest
        if not self._batches:
            raise InvalidValueError(
                f"`batch_size` must be at most the number of samples, {len(examples)}, when the last batch is dropped, "
                f"got {batch_size}."
            )
        if smallest < world_size:
            raise InvalidValueError(
                f"`world_size` must be at most {smallest}, the size of the smallest batch, got {world_size}; "
                "another `batch_size` or `drop_last=True` leaves no small batch."
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
        return self._used - batch * self.batch_size if batch == len(self) - 1 else self.batch_size

    def _plan(self, number: int) -> Callable[[int], Tensor]:
        """Sample numbers of every batch of an epoch, by its number; drawn on the CPU, so the same for every device."""
        count, random = len(self.examples), generator(ORDER, self.seed, number)
        order = torch.randperm(count, generator=random) if self.shuffle else torch.arange(count)
        order = order.to(self.examples.inputs.device)
        return lambda batch: order[batch * self.batch_size :][: self.size(number, batch)]
