"""Reading ahead: a second thread fetches what comes next while this one works on what is there."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Callable[[], Iterator[Item]]) -> Generator[Item]:
    """Yield what ``items()`` yields, fetched by a thread that is at most one item ahead.

    An error of the iterator is raised here, in its turn. Whoever stops early stops the thread.

    Examples:
        >>> list(read_ahead(lambda: iter("abc")))
        ['a', 'b', 'c']
    """
    waiting: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(maxsize=1)
    stop = threading.Event()

    def put(item: Item | None, error: BaseException | None = None) -> bool:
        while not stop.is_set():
            try:
                waiting.put((item, error), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    end = StopIteration()

    def fetch() -> None:
        try:
            for item in items():
                if not put(item):
                    return
            put(None, end)
        except BaseException as error:  # handed over, not swallowed
            put(None, error)

    thread = threading.Thread(target=fetch, name="metacal-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = waiting.get()
            if error is end:
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
