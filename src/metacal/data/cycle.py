"""An endless stream of batches."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from metacal.errors import InvalidValueError

Batch = TypeVar("Batch")


def cycle(loader: Iterable[Batch]) -> Iterator[Batch]:
    """Batches of a loader without end: each pass starts the loader anew, so it is reshuffled and nothing is cached.

    Examples:
        >>> batches = cycle([1, 2])
        >>> [next(batches) for _ in range(5)]
        [1, 2, 1, 2, 1]
    """
    while True:
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
        if is_empty:
            raise InvalidValueError("`loader` must give at least one batch per pass, got none.")
