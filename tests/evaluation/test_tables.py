"""Reading ahead: in order, errors in their turn, and a thread that ends with its reader."""

import threading

import pytest

from metacal.evaluation.tables import read_ahead


def test_reading_ahead():
    assert list(read_ahead(range(100))) == list(range(100))

    def fails():
        yield 1
        raise RuntimeError("no more")

    items = read_ahead(fails())
    assert next(items) == 1
    with pytest.raises(RuntimeError, match="no more"):
        next(items)
    before = set(threading.enumerate())
    endless = read_ahead(iter(int, 1))
    next(endless)
    (reader,) = set(threading.enumerate()) - before
    endless.close()
    reader.join()  # it ends: one that did not would hold the test up
