"""Batches: every sample once an epoch, resumed in the middle, shared between processes."""

import pytest
import torch

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.data import Batches, Examples, PadCropFlip

N = 103
EXAMPLES = Examples(torch.arange(N, dtype=torch.float32)[:, None], torch.arange(N) % 5)
IMAGES = Examples(
    torch.randint(256, (N, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 5
)


def flat(lists):
    return [number for numbers in lists for number in numbers]


def numbers(batches):
    return [x[:, 0].long().tolist() for x, _ in batches]


@pytest.mark.parametrize(("size", "count"), [(10, 11), (103, 1), (500, 1)])
def test_every_sample_comes_once(size, count):
    batches = Batches(EXAMPLES, size)
    seen = numbers(batches.epoch(0))
    assert len(seen) == len(batches) == count
    assert len(flat(seen)) == len(set(flat(seen))) == N
    for x, y in batches.epoch(3):
        assert torch.equal(x[:, 0].long() % 5, y)


def test_orders_depend_on_seed_and_epoch_alone():
    one, same, other = Batches(EXAMPLES, 10, seed=1), Batches(EXAMPLES, 7, seed=1), Batches(EXAMPLES, 10, seed=2)
    torch.manual_seed(5)
    first = numbers(one.epoch(4))
    torch.manual_seed(6)
    assert first == numbers(one.epoch(4)) != numbers(one.epoch(5))
    assert flat(first) == flat(numbers(same.epoch(4))) != flat(numbers(other.epoch(4)))


def test_without_shuffling_the_order_stays():
    batches = Batches(EXAMPLES, 10, shuffle=False)
    assert flat(numbers(batches)) == list(range(N)) == flat(numbers(batches.epoch(9)))


@pytest.mark.parametrize("start", [0, 1, 10, 11])
def test_resumed_epochs_are_those_that_went_through(start):
    augmented = Batches(IMAGES, 10, seed=3, transform=PadCropFlip([0.5] * 3, [0.5] * 3, seed=3))
    whole, resumed = list(augmented.epoch(2)), list(augmented.epoch(2, start=start))
    assert len(resumed) == 11 - start
    for (x, y), (x_resumed, y_resumed) in zip(whole[start:], resumed):
        assert torch.equal(x, x_resumed)
        assert torch.equal(y, y_resumed)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_together_are_the_single_process(world_size):
    def batches(rank, world_size):
        transform = PadCropFlip([0.5] * 3, [0.5] * 3, seed=1)
        return Batches(IMAGES, 10, seed=1, transform=transform, rank=rank, world_size=world_size)

    ranks = [list(batches(rank, world_size).epoch(1)) for rank in range(world_size)]
    for number, (x, y) in enumerate(batches(0, 1).epoch(1)):
        shares = [rank[number] for rank in ranks]
        assert torch.equal(torch.cat([share[0] for share in shares]), x)
        assert torch.equal(torch.cat([share[1] for share in shares]), y)
        sizes = [len(share[1]) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1


def test_the_transform_gets_epoch_sample_and_batch_numbers():
    calls, numbered = [], []

    def transform(inputs, *, epoch, samples, batch):
        calls.append((epoch, samples.tolist()))
        numbered.append(batch)
        return inputs * 2

    seen = numbers(Batches(EXAMPLES, 50, transform=transform).epoch(6))
    assert [epoch for epoch, _ in calls] == [6, 6, 6]
    assert numbered == [0, 1, 2]
    assert [[2 * number for number in samples] for _, samples in calls] == seen


def test_batches_are_copies():
    batches = Batches(EXAMPLES, 10, shuffle=False)
    for x, _ in batches:
        x.zero_()
    assert float(EXAMPLES.inputs.sum()) == N * (N - 1) / 2


def test_data_is_moved_once():
    batches = Batches(EXAMPLES, 10, device="cpu")
    assert batches.examples.inputs.data_ptr() == EXAMPLES.inputs.data_ptr()
    assert Batches(EXAMPLES, 10, device="meta").examples.inputs.device.type == "meta"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, InvalidValueError, "`batch_size` must be an integer >= 1, got 0"),
        ({"batch_size": 2.0}, InvalidTypeError, "`batch_size` must be an integer"),
        ({"rank": 2, "world_size": 2}, InvalidValueError, "`rank` must be below world_size = 2, got 2"),
        ({"world_size": 4}, InvalidValueError, "`world_size` must be at most 3, the size of the smallest batch"),
        ({"examples": EXAMPLES.select(torch.tensor([], dtype=torch.int64))}, InvalidValueError, "at least one sample"),
        ({"examples": [1, 2]}, InvalidTypeError, "`examples` must be Examples, got list"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        Batches(**{"examples": EXAMPLES, "batch_size": 10, **options})


def test_start_must_be_within_the_epoch():
    with pytest.raises(InvalidValueError, match="`start` must be at most the 11 batches of an epoch, got 12"):
        Batches(EXAMPLES, 10).epoch(0, start=12)


@pytest.mark.parametrize(("size", "last"), [(51, 52), (50, 3), (102, 103), (1, 1)])
def test_a_single_sample_that_is_left_over_joins_the_batch_before(size, last):
    batches = Batches(EXAMPLES, size)
    sizes = [len(y) for _, y in batches.epoch(3)]
    assert sizes[-1] == last
    assert sum(sizes) == N
    assert len(sizes) == len(batches)


def test_in_order_the_last_batch_stays_as_it_is():
    assert [len(y) for _, y in Batches(EXAMPLES, 51, shuffle=False)] == [51, 51, 1]
