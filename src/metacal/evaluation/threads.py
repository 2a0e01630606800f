"""How many threads torch uses, and work that is spread over them a piece a thread."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: operations are short, and another thread has work of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call the function for each item, in as many threads as torch has, each with torch on one.

    Threads that share one short operation mostly wait for each other; with an operation each they do not.
    """
    threads = torch.get_num_threads()
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))
