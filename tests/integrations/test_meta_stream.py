"""Meta batches without end: every sample once per pass, ranks apart, taken up where they were left."""

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

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


def test_a_loader_gives_its_workers_settings():
    def begin(number):
        pass

    options = {"num_workers": 1, "timeout": 9.0, "worker_init_fn": begin, "prefetch_factor": 3, "pin_memory": True}
    loader = DataLoader(dataset(), batch_size=3, multiprocessing_context="spawn", **options)
    given = MetaStream.of_loader(loader, seed=0).loading
    assert {name: given[name] for name in options} == options
    assert given["multiprocessing_context"] is loader.multiprocessing_context


@pytest.mark.parametrize(
    "sampler", [RandomSampler(range(10)), SequentialSampler(range(10)), DistributedSampler(range(10), 2, 0)]
)
def test_samplers_that_go_through_the_whole_dataset_leave_the_order_to_us(sampler):
    stream = MetaStream.of_loader(DataLoader(dataset(), batch_size=5, sampler=sampler), seed=2)
    assert drawn(stream, 4) == drawn(MetaStream(dataset(), 5, seed=2), 4)


@pytest.mark.parametrize("held_out", [range(90, 100), torch.arange(90, 100)], ids=["range", "tensor"])
def test_a_subset_is_never_left_and_still_cut_among_the_ranks_and_resumed(held_out):
    loader = DataLoader(dataset(100), batch_size=5, sampler=SubsetRandomSampler(held_out))
    ranks = [MetaStream.of_loader(loader, seed=0, rank=rank, ranks=2) for rank in range(2)]
    for _ in range(3):
        (first,), (second,) = (drawn(rank, 1) for rank in ranks)
        assert sorted(first + second) == list(range(90, 100))
    again = MetaStream.of_loader(loader, seed=0, rank=0, ranks=2)
    again.go_to(3)
    assert drawn(again, 2) == drawn(ranks[0], 2)


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([0.0] * 90 + [1.0] * 10, 20),
        SequentialSampler(range(10)),
        DistributedSampler(range(10), 2, 0),
        [3, 4, 5, 6],
    ],
    ids=["weighted", "shorter sequence", "part of a shorter one", "a list"],
)
def test_any_other_sampler_is_honoured(sampler):
    stream = MetaStream.of_loader(DataLoader(dataset(100), batch_size=2, sampler=sampler), seed=0)
    allowed = range(90, 100) if isinstance(sampler, WeightedRandomSampler) else range(10)
    assert {number for batch in drawn(stream, 25) for number in batch} <= set(allowed)


def test_a_batch_sampler_is_honoured():
    batches = BatchSampler(range(90, 94), 2, drop_last=False)
    stream = MetaStream.of_loader(DataLoader(dataset(100), batch_sampler=batches), seed=0)
    assert drawn(stream, 3) == [[90.0, 91.0], [92.0, 93.0], [90.0, 91.0]]


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
