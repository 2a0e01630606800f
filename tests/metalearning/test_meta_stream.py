"""Meta batches without end: every sample once per pass, ranks apart, taken up where they were left."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.data import Batches, Examples
from metacal.metalearning import meta_stream
from metacal.metalearning.meta_stream import EndlessOrder, MetaStream, split_batch


def dataset(n=10):
    return TensorDataset(torch.arange(float(n)), torch.arange(n) % 3)


def stream_of(**options):
    size = options.pop("size", 10)
    return MetaStream(DataLoader(dataset(size), **{"batch_size": 4, **options}))


def drawn(stream, count):
    return [next(stream)[0].tolist() for _ in range(count)]


def everything(batches):
    return sorted(number for x, _ in batches for number in x.tolist())


class Rows(IterableDataset):
    """A stream of samples that is gone through again in the same order."""

    def __init__(self, n=10):
        self.n = n

    def __iter__(self):
        return iter([(float(number), number % 3) for number in range(self.n)])


class Noisy(Dataset):
    """Samples with noise from torch's random numbers, as an augmentation has."""

    def __len__(self):
        return 10

    def __getitem__(self, number):
        return number + 0.5 * torch.rand(()), number % 3


class Shuffled:
    """An iterable that draws its own order each time."""

    def __iter__(self):
        for number in torch.randperm(6).tolist():
            yield torch.tensor([float(number)]), torch.tensor([0])


SOURCES = {
    "in order": lambda: DataLoader(dataset(), batch_size=4),
    "shuffled": lambda: DataLoader(dataset(), batch_size=4, shuffle=True),
    "last one dropped": lambda: DataLoader(dataset(), batch_size=4, drop_last=True),
    "with noise": lambda: DataLoader(Noisy(), batch_size=4),
    "subset": lambda: DataLoader(dataset(), batch_size=4, sampler=SubsetRandomSampler(range(3, 9))),
    "weighted": lambda: DataLoader(dataset(), batch_size=4, sampler=WeightedRandomSampler([1.0] * 10, 9)),
    "replaced": lambda: DataLoader(dataset(), batch_size=4, sampler=RandomSampler(range(5), replacement=True)),
    "batch sampler": lambda: DataLoader(dataset(), batch_sampler=BatchSampler(RandomSampler(range(10)), 4, False)),
    "rows": lambda: DataLoader(Rows(), batch_size=4),
    "list": lambda: [(torch.full((2,), float(number)), torch.tensor([0, 1])) for number in range(3)],
    "own order": Shuffled,
    "workers": lambda: DataLoader(dataset(), batch_size=4, shuffle=True, num_workers=1),
    "ours": lambda: Batches(Examples(torch.arange(10.0), torch.arange(10) % 3), 4, seed=3),
}


@pytest.mark.parametrize("name", SOURCES)
def test_taken_up_where_it_was_left_and_the_callers_random_numbers_are_not_touched(name):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    whole, again = MetaStream(SOURCES[name](), seed=1), MetaStream(SOURCES[name](), seed=1)
    expected = drawn(whole, 9)
    again.peek()
    again.go_to(5)
    assert drawn(again, 4) == expected[5:]
    assert again.drawn == 9
    again.go_to(0)
    assert drawn(again, 2) == expected[:2]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))])
def test_a_copy_goes_on_from_the_same_place(copied):
    stream = stream_of(shuffle=True)
    drawn(stream, 2)
    other = copied(stream)
    assert drawn(other, 5) == drawn(stream, 5)


@pytest.mark.parametrize("name", sorted({*SOURCES} - {"weighted", "replaced", "subset", "list", "with noise"}))
def test_once_gives_every_sample_once(name):
    stream = MetaStream(SOURCES[name]())
    samples = 6 if name == "own order" else 10
    for _ in range(2):
        assert everything(stream.once()) == list(range(samples))
    assert stream.drawn == 0


def test_once_gives_the_samples_of_a_subset_and_whatever_another_sampler_gives():
    assert everything(MetaStream(SOURCES["subset"]()).once()) == list(range(3, 9))
    assert len(everything(MetaStream(SOURCES["weighted"]()).once())) == 9


def test_to_peek_is_to_draw_nothing():
    for name in ("shuffled", "rows", "batch sampler", "ours"):
        stream, other = MetaStream(SOURCES[name]()), MetaStream(SOURCES[name]())
        x, y = stream.peek()
        assert len(x) == len(y)
        assert stream.drawn == 0
        assert drawn(stream, 3) == drawn(other, 3)


def test_every_pass_holds_every_sample_in_a_new_order():
    order = iter(EndlessOrder(10, 5, seed=0))
    first, second = ([*next(order), *next(order)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_last_batch_is_filled_up():
    order = iter(EndlessOrder(7, 4, seed=0))
    one, two = next(order), next(order)
    assert len(two) == 4
    assert sorted({*one, *two}) == list(range(7))
    assert two[-1] == one[0]


def test_another_seed_is_another_order():
    loader = SOURCES["shuffled"]()
    assert drawn(MetaStream(loader, seed=1), 3) != drawn(MetaStream(loader, seed=2), 3)


def on_rank(monkeypatch, rank, ranks):
    monkeypatch.setattr(meta_stream, "world_size", lambda: ranks)
    monkeypatch.setattr(meta_stream, "own_rank", lambda: rank)


def drawn_by_rank(monkeypatch, make, count, rank, ranks=2):
    with monkeypatch.context() as patch:
        on_rank(patch, rank, ranks)
        return drawn(make(), count)


def test_ranks_share_the_order_of_one_process(monkeypatch):
    joint = drawn(stream_of(size=24, batch_size=8), 5)
    parts = [drawn_by_rank(monkeypatch, lambda: stream_of(size=24), 5, rank) for rank in range(2)]
    assert joint == [first + second for first, second in zip(*parts)]


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_once_is_shared_out_among_ranks(monkeypatch, ranks):
    seen = []
    for rank in range(ranks):
        with monkeypatch.context() as patch:
            on_rank(patch, rank, ranks)
            seen += everything(stream_of().once())
    assert sorted(seen) == list(range(10))


def test_a_loader_gives_its_settings():
    def collate(rows):
        return torch.tensor([7.0] * len(rows)), torch.tensor([0] * len(rows))

    assert drawn(stream_of(batch_size=3, collate_fn=collate), 2) == [[7.0] * 3] * 2


def test_a_loader_gives_its_workers_settings():
    def begin(number):
        pass

    options = {"num_workers": 1, "timeout": 9.0, "worker_init_fn": begin, "prefetch_factor": 3, "pin_memory": True}
    loader = DataLoader(dataset(), batch_size=3, multiprocessing_context="spawn", **options)
    made = MetaStream(loader)._load(dataset(), batch_size=3)
    assert {name: getattr(made, name) for name in options} == options
    assert made.multiprocessing_context is loader.multiprocessing_context


def test_workers_load_the_same_batches():
    assert drawn(stream_of(num_workers=2, persistent_workers=True), 4) == drawn(stream_of(), 4)


@pytest.mark.parametrize(
    "sampler", [RandomSampler(range(10)), SequentialSampler(range(10)), DistributedSampler(range(10), 2, 0)]
)
def test_samplers_that_go_through_the_whole_dataset_leave_the_order_to_us(sampler):
    assert drawn(stream_of(sampler=sampler), 4) == drawn(stream_of(), 4)


@pytest.mark.parametrize("held_out", [range(90, 100), torch.arange(90, 100)], ids=["range", "tensor"])
def test_a_subset_is_never_left_and_still_cut_among_the_ranks_and_resumed(monkeypatch, held_out):
    def make(start=0):
        stream = stream_of(size=100, batch_size=5, sampler=SubsetRandomSampler(held_out))
        stream.go_to(start)
        return stream

    first, second = (drawn_by_rank(monkeypatch, make, 5, rank) for rank in range(2))
    for one, two in zip(first, second):
        assert sorted(one + two) == list(range(90, 100))
    assert drawn_by_rank(monkeypatch, lambda: make(3), 2, 0) == first[3:]


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
    stream = stream_of(size=100, batch_size=2, sampler=sampler)
    allowed = range(90, 100) if isinstance(sampler, WeightedRandomSampler) else range(10)
    assert {number for batch in drawn(stream, 25) for number in batch} <= set(allowed)


def test_a_batch_sampler_is_honoured():
    stream = MetaStream(DataLoader(dataset(100), batch_sampler=BatchSampler(range(90, 94), 2, drop_last=False)))
    assert drawn(stream, 3) == [[90.0, 91.0], [92.0, 93.0], [90.0, 91.0]]


def test_a_loader_that_does_more_than_load_is_honoured():
    class Doubling(DataLoader):
        def __iter__(self):
            return ((2 * x, y) for x, y in super().__iter__())

    assert drawn(MetaStream(Doubling(dataset(4), batch_size=4)), 2) == [[0.0, 2.0, 4.0, 6.0]] * 2


def test_a_loader_over_a_stream_is_gone_through_again():
    stream = MetaStream(DataLoader(Rows(2), batch_size=2))
    assert drawn(stream, 3) == [[0.0, 1.0]] * 3


def test_an_attribute_that_is_called_epoch_is_not_ours():
    loader = SOURCES["shuffled"]()
    loader.epoch = 3
    assert drawn(MetaStream(loader), 3) == drawn(MetaStream(SOURCES["shuffled"]()), 3)


def test_loaders_of_accelerate_do_not_become_the_one_in_use():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    held_out, training = (accelerator.prepare(SOURCES[name]()) for name in ("shuffled", "in order"))
    stream = MetaStream(held_out)
    ends = []
    for _ in training:
        drawn(stream, 2)
        ends.append(accelerator.gradient_state.end_of_dataloader)
    assert ends == [False, False, True]
    assert everything(stream.once()) == list(range(10))


@pytest.mark.parametrize("name", ["shuffled", "in order"])
def test_samples_of_accelerates_loaders_are_reordered_too(name):
    """It gives them a batch sampler, and a shuffled one a sampler of its own, with the same order in each pass."""
    from accelerate import Accelerator

    prepared = Accelerator(cpu=True).prepare(SOURCES[name]())
    assert drawn(MetaStream(prepared), 6) == drawn(MetaStream(SOURCES[name]()), 6)


def test_the_share_of_a_process_that_accelerate_cuts_off_is_not_cut_again():
    from accelerate.data_loader import BatchSamplerShard

    whole = SOURCES["in order"]()
    shard = BatchSamplerShard(whole.batch_sampler, num_processes=2, process_index=1)
    stream = MetaStream(DataLoader(whole.dataset, batch_sampler=shard))
    assert everything(stream.once()) == list(range(10))  # of one process here, as far as torch knows


def test_batches_may_be_dictionaries_or_longer_tuples():
    y = torch.tensor([1, 0])
    by_name = next(MetaStream([{"x": 1, "label": y}]))
    assert by_name[0] == {"x": 1}
    assert by_name[1] is y
    assert next(MetaStream([(1, 2, y)]))[0] == (1, 2)
    rows = [{"pixels": float(number), "labels": number % 3} for number in range(6)]
    inputs, labels = next(MetaStream(DataLoader(rows, batch_size=6)))
    assert labels.tolist() == [int(pixel) % 3 for pixel in inputs["pixels"]]


def generated():
    yield torch.zeros(1), torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (
            generated(),
            "iterable of batches that can be gone through again and again, got generator, which ends",
        ),
        (iter([1]), "got list_iterator, which ends; pass the loader itself"),
        (zip([1], [2]), "got zip, which ends"),
        (3, "`meta` must be a loader or an iterable of batches, got int"),
        ("val", "`meta` must be a loader or an iterable of batches, got str"),
        (torch.zeros(3), "`meta` must be a loader or an iterable of batches, got Tensor"),
        ({"x": 1}, "`meta` must be a loader or an iterable of batches, got dict"),
        (None, "`meta` must be a loader or an iterable of batches, got NoneType"),
    ],
)
def test_what_cannot_be_gone_through_again(meta, message):
    with pytest.raises(InvalidTypeError, match=message):
        MetaStream(meta)


@pytest.mark.parametrize(
    "empty",
    [
        [],
        DataLoader(dataset(0), batch_size=4),
        DataLoader(dataset(), batch_size=4, sampler=SubsetRandomSampler([])),
        DataLoader(Rows(0), batch_size=4),
    ],
    ids=["list", "dataset", "subset", "rows"],
)
def test_no_samples(empty):
    with pytest.raises(InvalidValueError, match="`meta` must give at least one batch per pass, got none"):
        next(MetaStream(empty))


def test_workers_that_stay_are_not_shared_with_other_passes_of_the_loader():
    samples = TensorDataset(torch.arange(6.0), torch.arange(6))
    in_order = [[number] for number in range(6)]  # cannot be reordered: the loader itself is gone through
    loader = DataLoader(samples, batch_sampler=in_order, num_workers=1, persistent_workers=True)
    stream = MetaStream(loader)
    drawn = []
    for _ in range(2):
        drawn += [next(stream)[1].item() for _ in range(2)]
        assert len(list(loader)) == len(list(stream.once())) == 6
        assert stream.peek()[1] == 0
    assert drawn == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_random_numbers_of_workers_are_those_of_the_place_too(workers):
    def make():
        return MetaStream(DataLoader(Noisy(), batch_size=4, num_workers=workers), seed=3)

    whole, resumed = make(), make()
    expected = [next(whole)[0].tolist() for _ in range(5)]
    resumed.go_to(2)
    assert [next(resumed)[0].tolist() for _ in range(3)] == expected[2:]
    assert len({number % 1 for batch in expected for number in batch}) == 20


X, Y = torch.zeros(2, 3), torch.tensor([1, 0])


def test_a_batch_is_split_into_input_and_labels():
    assert split_batch((X, Y)) == (X, Y)
    assert split_batch([X, Y]) == (X, Y)
    (first, second), labels = split_batch((X, X, Y))
    assert first is X
    assert second is X
    assert labels is Y
    inputs, labels = split_batch({"x": X, "mask": X, "labels": Y})
    assert list(inputs) == ["x", "mask"]
    assert labels is Y


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, r"`meta` must give batches \(x, y\); a batch is a Tensor"),
        ((X,), r"`meta` must give batches \(x, y\); a batch is a tuple of 1"),
        ((X, [1, 0]), "`meta targets` must be a tensor of class labels, got list"),
        ({"x": X, "label": None}, "`meta targets` must be a tensor of class labels, got NoneType"),
        ({"x": X}, "`meta` must give batches with labels; its keys are 'x'"),
        ((X[:0], Y[:0]), "`meta targets` must hold at least one sample, got none"),
    ],
)
def test_a_batch_that_cannot_be_split(batch, message):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=message):
        split_batch(batch)
