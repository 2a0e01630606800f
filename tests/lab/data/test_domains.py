"""Batches by domain: one a batch, another for the meta batch, the same whenever and wherever they are asked for."""

import pytest
import torch

from metacal.errors import InvalidValueError
from metacal.lab.data import Examples, load_dataset
from metacal.lab.data.domains import Corrupting, corrupted_examples, corrupted_mixture, shifted_sets

DOMAINS = [("fog", 1), ("fog", 5), ("snow", 3), ("contrast", 2)]
IMAGES = torch.randint(256, (24, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_meta_batch_is_of_another_corruption():
    train = Corrupting(DOMAINS, None, seed=0)
    meta = Corrupting(DOMAINS, None, seed=0, unlike=train)
    seen = set()
    for batch in range(60):
        train(IMAGES[:1], epoch=0, samples=torch.tensor([0]), batch=batch)
        name, severity = meta.choose(0, batch)
        assert train.current == train.choose(0, batch)
        assert train.current[0] != name
        seen |= {train.choose(0, batch), (name, severity)}
    assert seen == set(DOMAINS)


@pytest.mark.parametrize("severities", [(1, 2), (1, 3, 5)])
def test_with_one_corruption_alone_a_meta_batch_is_of_another_severity(severities):
    domains = [("fog", severity) for severity in severities]
    train = Corrupting(domains, None, seed=0)
    meta = Corrupting(domains, None, seed=0, unlike=train)
    for batch in range(30):
        train(IMAGES[:1], epoch=0, samples=torch.tensor([0]), batch=batch)
        assert meta.choose(0, batch) != train.choose(0, batch)


def test_a_batch_is_corrupted_by_its_number_alone():
    samples = torch.arange(24)
    one = Corrupting(DOMAINS, None, seed=3)(IMAGES, epoch=2, samples=samples, batch=5)
    part = Corrupting(DOMAINS, None, seed=3)(IMAGES[8:], epoch=2, samples=samples[8:], batch=5)
    assert torch.equal(one[8:], part)
    other = Corrupting(DOMAINS, None, seed=4)
    assert [other.choose(0, batch) for batch in range(30)] != [
        Corrupting(DOMAINS, None, seed=3).choose(0, batch) for batch in range(30)
    ]


def test_a_mixture_deals_out_its_samples():
    examples = Examples(IMAGES, torch.arange(24))
    mixture = corrupted_mixture(examples, DOMAINS, seed=0)
    assert torch.equal(mixture.targets, examples.targets)
    assert torch.equal(mixture.inputs, corrupted_mixture(examples, DOMAINS, seed=0).inputs)
    assert not torch.equal(mixture.inputs, corrupted_mixture(examples, DOMAINS, seed=1).inputs)
    assert bool((mixture.inputs != IMAGES).flatten(1).any(1).all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: corrupted_examples(Examples(IMAGES, torch.zeros(24).long()), "fogg", 1), "nearest: fog"),
        (lambda: shifted_sets(load_dataset("digits"), [("fog", 7)]), "from 1 to 5, got 7"),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(InvalidValueError) as caught:
        make()
    assert message in str(caught.value)
