"""Meta batches without end: every sample once a pass, ranks apart, taken up where they were left."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.integrations.meta_stream import EndlessOrder, MetaStream


def dataset(n=10):
    return TensorDataset(torch.arange(float(n)), torch.arange(n) % 3)


def drawn(stream, count):
    return [next(stream)[0].tolist() for _ in range(count)]


def test_every_pass_holds_every_sample_in_a_new_order():
    order = iter(EndlessOrder(10, 5, seed=0))
    first, second = ([*next(order), *next(order)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10)) and first != second


def test_the_last_batch_is_filled_up():
    order = iter(EndlessOrder(7, 4, seed=0))
    one, two = next(order), next(order)
    assert len(two) == 4 and sorted({*one, *two}) == list(range(7)) and two[-1] == one[0]


def test_ranks_share_the_order_of_one_process():
    joint = iter(EndlessOrder(24, 8, seed=3))
    parts = [iter(EndlessOrder(24, 4, seed=3, rank=rank, ranks=2)) for rank in range(2)]
    for _ in range(5):
        assert next(joint) == [*next(parts[0]), *next(parts[1])]


def test_going_on_where_it_was_left():
    whole, again = (MetaStream(dataset(), 4, seed=1) for _ in range(2))
    expected = drawn(whole, 9)
    again.go_to(5)
    assert drawn(again, 4) == expected[5:] and again.drawn == 9


def test_a_loader_gives_its_settings():
    loader = DataLoader(dataset(), batch_size=3, collate_fn=lambda rows: ("collated", len(rows)))
    assert next(MetaStream.of_loader(loader, seed=0)) == ("collated", 3)


def test_a_loader_over_a_stream_is_gone_through_again():
    class Endless(IterableDataset):
        def __iter__(self):
            return iter([1.0, 2.0])

    stream = MetaStream.of_loader(DataLoader(Endless(), batch_size=2))
    assert [next(stream).tolist() for _ in range(3)] == [[1.0, 2.0]] * 3


def test_bad_input():
    with pytest.raises(InvalidValueError, match="at least one sample"):
        MetaStream(dataset(0), 4)
    with pytest.raises(InvalidTypeError, match="dataset with a length, got int"):
        MetaStream(3, 4)
    with pytest.raises(InvalidValueError, match="meta_batch_size"):
        MetaStream(dataset(), 0)
