"""Batches by domain: one a batch, another for the meta batch, the same whenever and wherever they are asked for."""

import numpy as np
import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.data import Examples, from_arrays, load_dataset
from metacal.lab.data.domains import (
    Corrupting,
    DomainBatches,
    Turn,
    by_domain,
    corrupted_examples,
    corrupted_mixture,
    shifted_sets,
)

DOMAINS = [("fog", 1), ("fog", 5), ("snow", 3), ("contrast", 2)]
IMAGES = torch.randint(256, (24, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
EXAMPLES = Examples(
    torch.arange(50.0).view(50, 1), torch.zeros(50, dtype=torch.int64), torch.arange(50) % 7 // 3
)  # domains 0, 1, 2 with 22, 21 and 7 samples


def test_a_meta_batch_is_of_another_corruption():
    turn = Turn()
    train = Corrupting(DOMAINS, None, seed=0, turn=turn)
    meta = Corrupting(DOMAINS, None, seed=0, turn=turn, follows=True)
    seen = set()
    for batch in range(60):
        train(IMAGES[:1], epoch=0, samples=torch.tensor([0]), batch=batch)
        name, severity = meta.choose(0, batch)
        assert turn.current == train.choose(0, batch)
        assert turn.current[0] != name
        seen |= {train.choose(0, batch), (name, severity)}
    assert seen == set(DOMAINS)


@pytest.mark.parametrize("severities", [(1, 2), (1, 3, 5)])
def test_with_one_corruption_alone_a_meta_batch_is_of_another_severity(severities):
    turn, domains = Turn(), [("fog", severity) for severity in severities]
    train = Corrupting(domains, None, seed=0, turn=turn)
    meta = Corrupting(domains, None, seed=0, turn=turn, follows=True)
    for batch in range(30):
        train(IMAGES[:1], epoch=0, samples=torch.tensor([0]), batch=batch)
        assert meta.choose(0, batch) != train.choose(0, batch)


def test_a_batch_is_corrupted_by_its_number_alone():
    samples = torch.arange(24)
    one = Corrupting(DOMAINS, None, seed=3, turn=Turn())(IMAGES, epoch=2, samples=samples, batch=5)
    part = Corrupting(DOMAINS, None, seed=3, turn=Turn())(IMAGES[8:], epoch=2, samples=samples[8:], batch=5)
    assert torch.equal(one[8:], part)
    other = Corrupting(DOMAINS, None, seed=4, turn=Turn())
    assert [other.choose(0, batch) for batch in range(30)] != [
        Corrupting(DOMAINS, None, seed=3, turn=Turn()).choose(0, batch) for batch in range(30)
    ]


def test_batches_of_one_domain_each_go_through_all_samples():
    batches = DomainBatches(EXAMPLES, 8, turn=Turn(), seed=1)
    seen = []
    for batch, (x, _) in enumerate(batches.epoch(4)):
        rows = x.view(-1).long()
        assert len(EXAMPLES.domains[rows].unique()) == 1
        assert len(rows) == batches.size(4, batch)
        assert batches.turn.current == int(EXAMPLES.domains[rows[0]])
        seen += rows.tolist()
    assert sorted(seen) == list(range(50))
    assert len(batches) == 3 + 3 + 1
    whole, resumed = ([x.tolist() for x, _ in batches.epoch(4, start=start)] for start in (0, 3))
    assert whole[3:] == resumed
    assert [x.tolist() for x, _ in batches.epoch(5)] != whole


def test_a_meta_batch_is_of_another_domain():
    turn = Turn()
    meta = DomainBatches(EXAMPLES, 8, turn=turn, follows=True, seed=1)
    for current in (0, 1, 2):
        turn.current = current
        for x, _ in meta.epoch(0):
            domains = EXAMPLES.domains[x.view(-1).long()].unique()
            assert len(domains) == 1
            assert int(domains) != current


def test_processes_share_a_batch():
    halves = [DomainBatches(EXAMPLES, 8, turn=Turn(), rank=rank, world_size=2) for rank in (0, 1)]
    for whole, *parts in zip(DomainBatches(EXAMPLES, 8, turn=Turn()), *halves, strict=True):
        assert torch.equal(whole[0], torch.cat([part[0] for part in parts]))
    with pytest.raises(InvalidValueError, match="smallest batch of one domain"):
        DomainBatches(EXAMPLES, 20, turn=Turn(), rank=0, world_size=3)
    joined = DomainBatches(EXAMPLES, 21, turn=Turn())
    assert sorted(joined.size(0, batch) for batch in range(len(joined))) == [7, 21, 22]


def test_a_mixture_deals_out_its_samples():
    examples = Examples(IMAGES, torch.arange(24))
    mixture = corrupted_mixture(examples, DOMAINS, seed=0)
    assert torch.equal(mixture.targets, examples.targets)
    assert torch.equal(mixture.inputs, corrupted_mixture(examples, DOMAINS, seed=0).inputs)
    assert not torch.equal(mixture.inputs, corrupted_mixture(examples, DOMAINS, seed=1).inputs)
    assert bool((mixture.inputs != IMAGES).flatten(1).any(1).all())


def hospital_data(**changes):
    generator = np.random.default_rng(0)
    arrays = {
        "train_inputs": generator.normal(size=(60, 4)).astype(np.float32),
        "train_targets": np.arange(60) % 3,
        "train_domains": np.array(list("ABCDE"))[np.arange(60) % 5],
    }
    return from_arrays(**{**arrays, **changes})


def test_hospitals():
    data = by_domain(hospital_data(), ["A", "B", "C", "D"], ["E"])
    assert data.domain_names == ("A", "B", "C", "D", "E")
    assert len(data.train) == 48
    assert len(data.test) == 12
    assert data.test.domains.unique().tolist() == [4]
    (only,) = shifted_sets(data, ["E"])
    assert torch.equal(only.inputs, data.test.inputs)
    assert shifted_sets(data, ["E"]).source == "the data's own"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: by_domain(load_dataset("digits"), ["A"], ["B"]), "must be corruptions for digits"),
        (lambda: by_domain(hospital_data(), ["A", "F"], ["E"]), "A, B, C, D, E; got F"),
        (lambda: hospital_data(train_domains=np.arange(7)), "one for each of 60 samples, got 7"),
        (lambda: DomainBatches(Examples(torch.zeros(2, 1), torch.zeros(2).long()), 1, turn=Turn()), "know the domains"),
        (lambda: corrupted_examples(Examples(IMAGES, torch.zeros(24).long()), "fogg", 1), "nearest: fog"),
        (lambda: shifted_sets(load_dataset("digits"), [("fog", 7)]), "from 1 to 5, got 7"),
        (lambda: Examples(IMAGES, torch.zeros(24).long(), torch.zeros(3).long()), "one for each sample"),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(InvalidValueError) as caught:
        make()
    assert message in str(caught.value)


def test_an_npz_file_says_where_its_samples_come_from(tmp_path):
    data = hospital_data()
    names = np.array(data.domain_names)
    np.savez(
        tmp_path / "h.npz",
        inputs=np.random.default_rng(0).normal(size=(60, 4)),
        targets=np.arange(60) % 3,
        domains=names[np.arange(60) % 5],
    )
    read = load_dataset(tmp_path / "h.npz")
    assert read.domain_names == data.domain_names
    assert len(read.train) + len(read.test) == 60


def test_a_folder_of_domains(tmp_path):
    from PIL import Image

    for number, (domain, label) in enumerate(
        [("photo", "cat"), ("photo", "dog"), ("sketch", "cat"), ("sketch", "dog")]
    ):
        (tmp_path / domain / label).mkdir(parents=True)
        for each in range(5):
            Image.new("RGB", (8, 8), (40 * number + each,) * 3).save(tmp_path / domain / label / f"{each}.png")
    data = by_domain(load_dataset(tmp_path, domains=True), ["photo"], ["sketch"])
    assert data.class_names == ("cat", "dog")
    assert data.domain_names == ("photo", "sketch")
    assert int(data.train.inputs.max()) == 44
    assert int(data.test.inputs.min()) == 80
    assert len(data.test) == 10
    with pytest.raises(InvalidValueError, match="at least 2 folders by domain"):
        load_dataset(tmp_path / "photo", domains=True)
