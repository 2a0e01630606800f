"""Splits are disjoint, seeded, and impossible ones are refused."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.lab.data import from_arrays, load_dataset, make_splits
from metacal.lab.data.batches import draw_test_set, quotas

N = 1000
LABELS = np.random.default_rng(0).choice(4, N, p=[0.6, 0.3, 0.09, 0.01])
DATA = from_arrays(np.arange(N, dtype=np.float32)[:, None], LABELS, np.zeros((4, 1), np.float32), np.arange(4))


@pytest.mark.parametrize("stratified", [False, True])
def test_parts_are_disjoint_and_cover_everything(stratified):
    splits = make_splits(DATA, seed=3, with_meta=True, stratified=stratified)
    assert (len(splits.train), len(splits.meta), len(splits.val), len(splits.test)) == (800, 100, 100, 4)
    together = torch.cat([splits.indices[part] for part in ("train", "meta", "val")])
    assert sorted(together.tolist()) == list(range(N))
    for part, examples in (("train", splits.train), ("meta", splits.meta), ("val", splits.val)):
        assert torch.equal(examples.inputs[:, 0].long(), splits.indices[part])
        assert torch.equal(examples.targets, torch.from_numpy(LABELS)[splits.indices[part]])


@pytest.mark.parametrize("stratified", [False, True])
def test_the_validation_part_is_the_same_with_and_without_meta(stratified):
    with_meta = make_splits(DATA, seed=5, with_meta=True, stratified=stratified)
    without = make_splits(DATA, seed=5, with_meta=False, stratified=stratified)
    assert without.meta is None
    assert "meta" not in without.indices
    assert len(without.train) == 900
    assert torch.equal(with_meta.indices["val"], without.indices["val"])
    assert set(without.indices["train"].tolist()) == set(
        torch.cat([with_meta.indices["train"], with_meta.indices["meta"]]).tolist()
    )


def few_of_each_class(*counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    return from_arrays(np.zeros((len(labels), 1)), labels, np.zeros((1, 1)), np.array([0]))


def test_the_validation_part_is_the_same_where_classes_hardly_suffice_for_a_meta_set():
    found = {
        with_meta: make_splits(
            few_of_each_class(3, 9), seed=0, with_meta=with_meta, val_size=6, meta_size=2, stratified=True
        ).indices["val"]
        for with_meta in (True, False)
    }
    assert sorted(found[True].tolist()) == [1, 3, 4, 5, 9, 10]
    assert torch.equal(found[True], found[False])


@pytest.mark.parametrize(("counts", "val_size", "expected"), [((2, 9), 5, [1, 4]), ((3, 9), 10, [2, 8])])
def test_without_a_meta_set_the_validation_part_may_take_what_a_meta_set_could_not_spare(counts, val_size, expected):
    data = few_of_each_class(*counts)
    val = make_splits(data, seed=0, with_meta=False, val_size=val_size, stratified=True).val
    assert np.bincount(val.targets).tolist() == expected


def test_the_seed_decides_and_the_global_generator_does_not():
    torch.manual_seed(1)
    one = make_splits(DATA, seed=0, with_meta=True)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    same, other = (make_splits(DATA, seed=seed, with_meta=True) for seed in (0, 1))
    assert torch.equal(one.indices["val"], same.indices["val"])
    assert not torch.equal(one.indices["val"], other.indices["val"])
    torch.manual_seed(1)
    assert torch.equal(state, torch.random.get_rng_state())


def test_stratified_parts_have_the_frequencies_of_the_whole():
    splits = make_splits(DATA, seed=0, with_meta=True, stratified=True)
    whole = np.bincount(LABELS)
    for part in (splits.train, splits.meta, splits.val):
        counts = np.bincount(part.targets, minlength=4)
        assert np.abs(counts - whole * len(part) / N).max() <= 1
        assert counts.min() >= 1


def test_sizes_take_the_place_of_shares():
    splits = make_splits(DATA, seed=0, with_meta=True, val_size=90, meta_size=7, train_size=50)
    assert [len(splits.indices[part]) for part in ("val", "meta", "train")] == [90, 7, 50]
    few = make_splits(DATA, seed=0, with_meta=True, val_size=90, meta_size=7)
    assert torch.equal(splits.indices["train"], few.indices["train"][:50])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_share": 0.0}, r"`val_share` must be in \(0, 1\), got 0.0"),
        ({"val_share": 1e-5}, "`val_share` must give at least one sample"),
        ({"val_share": 0.6, "meta_share": 0.5}, "1,000 samples are too few for 600 val and 500 meta and 1 training"),
        ({"val_size": 1000}, "`val_size` must fit the data"),
        ({"train_size": 801}, "801 training samples"),
        ({"train_size": 0}, "`train_size` must be an integer >= 1"),
        ({"meta_size": 3, "stratified": True}, "3 samples in meta are too few for one of each of 4 classes"),
        ({"seed": -1}, "`seed` must be an integer >= 0"),
    ],
)
def test_impossible_splits_are_refused(options, message):
    with pytest.raises(InvalidValueError, match=message):
        make_splits(DATA, **{"seed": 0, "with_meta": True, **options})


def test_a_class_too_small_to_stratify_is_named():
    data = from_arrays(np.zeros((9, 1)), np.array([0] * 7 + [1] * 2), np.zeros((1, 1)), np.array([0]))
    with pytest.raises(InvalidValueError, match="class 1 has 2 samples, too few for one in each part"):
        make_splits(data, seed=0, with_meta=True, val_size=2, meta_size=2, stratified=True)


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_quotas_add_up_and_stay_feasible(keep):
    random = np.random.default_rng(keep)
    for _ in range(200):
        counts = random.integers(0, 30, 6)
        counts[counts > 0] += keep
        counts[0] += keep + 1
        most = int((counts - keep)[counts > 0].sum())
        size = int(random.integers((counts > 0).sum(), most + 1))
        found = quotas(counts, size, keep=keep, part="val")
        assert found.sum() == size
        assert (found >= (counts > 0)).all()
        assert (counts - found >= np.minimum(counts, keep)).all()


def test_make_splits_wants_our_dataset():
    with pytest.raises(InvalidTypeError, match=r"torch\.utils\.data\.random_split for torch datasets"):
        make_splits(TensorDataset(torch.zeros(N)), seed=0, with_meta=True)


@pytest.mark.parametrize(
    ("samples", "share", "message"),
    [
        (10, 0.0, r"`test_share` must be in \(0, 1\)"),
        (1000, 0.0001, "`test_share` must give at least one sample, got 0.0001 of 1000 samples"),
        (1, 0.9, "`test_share` must leave a sample to train on"),
    ],
)
def test_impossible_test_sets_are_refused(samples, share, message):
    with pytest.raises(InvalidValueError, match=message):
        draw_test_set(torch.zeros(samples, dtype=torch.int64), share, seed=0)


def test_split_of_digits_is_pinned():
    splits = make_splits(load_dataset("digits"), seed=0, with_meta=True)
    assert splits.indices["val"][:3].tolist() == PINNED


PINNED = [1389, 159, 1053]
