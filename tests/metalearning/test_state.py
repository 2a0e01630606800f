"""Saving, resuming, copying: what goes on, goes on as if nothing had happened."""

import copy
import io
import pickle

import pytest
import torch
from tests.metalearning.models import K, batch, batches, both_ways, calibrator, make_net, same, sgd, state_of, train
from torch.utils.data import DataLoader, TensorDataset

from metacal import HierarchicalLabelSmoothing, NonUniformLabelSmoothing, ScalarLabelSmoothing, UnitwiseL2
from metacal import VectorLabelSmoothing as Vector
from metacal.errors import InvalidValueError

OPTIMIZERS = {
    "sgd": lambda net: sgd(net, momentum=0.9),
    "adam": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01),
}


@both_ways
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resuming_is_bit_identical(name, through):
    """With dropout, a shuffled loader of held-out samples in the middle of a pass, and a memory."""

    def fresh():
        net = make_net()
        optimizer = OPTIMIZERS[name](net)
        learned = {"smoothing": HierarchicalLabelSmoothing(K), "l2": UnitwiseL2(net.fc)}
        held_out = DataLoader(TensorDataset(*batch(27, 3)), batch_size=10, shuffle=True)
        options = dict(meta=held_out, optimizer=optimizer, head="fc", through=through, every=2, memory=25)
        return net, optimizer, calibrator(net, learned, **options)

    net, optimizer, meta = fresh()
    torch.manual_seed(5)
    train(meta, optimizer, 5)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), meta.state_dict(), torch.get_rng_state()))
    train(meta, optimizer, 9, start=5)

    resumed, resumed_optimizer, resumed_meta = fresh()
    resumed.load_state_dict(saved[0])
    resumed_optimizer.load_state_dict(saved[1])
    resumed_meta.load_state_dict(saved[2])
    torch.set_rng_state(saved[3])
    train(resumed_meta, resumed_optimizer, 9, start=5)
    assert same(state_of(net), state_of(resumed))
    assert same(state_of(meta.hyperparameters), state_of(resumed_meta.hyperparameters))
    assert meta.history == resumed_meta.history
    assert len(meta.history) == (7 if name == "sgd" else 6)
    assert meta.stream.drawn == resumed_meta.stream.drawn == len(meta.history)


def test_a_state_without_a_place_in_the_stream_is_taken_up_after_its_meta_steps():
    meta, other = calibrator(meta=batches(5)), calibrator(meta=batches(5))
    for x, y in batches(3):
        meta.step(x, y)
    state = meta.state_dict()
    assert state.pop("drawn") == 3
    other.load_state_dict(state)
    assert torch.equal(next(other.stream)[0], batches(5)[3][0])


def test_adams_state_is_restored_by_name():
    """Members may be given in another order than when the state was saved."""
    members = {"a": lambda: ScalarLabelSmoothing(K), "b": lambda: NonUniformLabelSmoothing(K, initial="uniform")}

    def fresh(order):
        return calibrator(make_net(dropout=0.0), {name: members[name]() for name in order})

    saved, same_order, other_order = fresh("ab"), fresh("ab"), fresh("ba")
    for x, y in batches(3):
        saved.step(x, y)
    for resumed in (same_order, other_order):
        resumed.load_state_dict(saved.state_dict())
        first = dict(zip(resumed.hyperparameters.omega(), resumed._adam.first))
        for name, moment in zip(saved.hyperparameters.omega(), saved._adam.first):
            assert torch.equal(first[name], moment)
    with pytest.raises(InvalidValueError, match="must be of the hyper-parameters strength, got one of"):
        calibrator()._adam.load_state_dict(saved.state_dict()["adam"], ["strength"])


@both_ways
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda meta: pickle.loads(pickle.dumps(meta))])
def test_a_copy_goes_its_own_way(copied, through):
    """A copy comes with a copy of the model, watches that one, and takes the steps that the original would."""
    net = make_net(dropout=0.0)
    meta = calibrator(net, Vector(K), meta=batches(3), through=through)
    meta.step(*batch(12, 1))
    with meta.watching():
        before = state_of(meta.hyperparameters)
    other = copied(meta)
    assert other.model is not net
    other.step(*batch(12, 3)).backward()
    assert same(state_of(meta.hyperparameters), before)
    assert net.fc.weight.grad is None
    meta.step(*batch(12, 3))
    assert same(state_of(meta.hyperparameters), state_of(other.hyperparameters))
    assert not same(state_of(meta.hyperparameters), before)
    ours, theirs = (net.fc, other.model.fc) if through == "head" else (net, other.model)
    assert len(theirs._forward_hooks) == 1
    other.remove()
    assert not theirs._forward_hooks
    assert len(ours._forward_hooks) == 1


@both_ways
def test_a_model_with_a_calibrator_can_be_copied_and_pickled(through):
    net = make_net()
    meta = calibrator(net, through=through)
    stream = io.BytesIO()
    torch.save(net, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    x, y = batch(8, 1)
    loaded(x), copy.deepcopy(net)(x)
    meta.step(x, y)
    assert len(meta.history) == 1


@both_ways
def test_a_saved_state_is_a_snapshot(through):
    meta = calibrator(hyperparameters=NonUniformLabelSmoothing(K, initial="uniform"), through=through)
    meta.step(*batch(8, 1))
    saved, strength = meta.state_dict(), meta.hyperparameters.strength.detach().clone()
    for seed in range(3):
        meta.step(*batch(8, seed))
    assert not torch.equal(meta.hyperparameters.strength, strength)
    meta.load_state_dict(saved)
    assert torch.equal(meta.hyperparameters.strength, strength)
    assert len(meta.history) == 1


@both_ways
def test_state_dict_loads_with_weights_only(tmp_path, through):
    meta = calibrator(hyperparameters=NonUniformLabelSmoothing(K), through=through, memory=16)
    meta.step(*batch(12, 1))
    torch.save(meta.state_dict(), tmp_path / "meta.pt")
    meta.load_state_dict(torch.load(tmp_path / "meta.pt", weights_only=True))
    assert len(meta.history) == 1


@pytest.mark.parametrize("steps", [0, 1, 7, 8, 20, 21])
def test_the_numbers_of_the_last_meta_step_are_restored(tmp_path, steps):
    net = make_net()
    meta, other = (calibrator(net) for _ in range(2))
    meta._history.most = other._history.most = 8  # the last row is not always one that is kept
    for x, y in batches(steps):
        meta.step(x, y)
    other.step(*batch(12, 1))
    torch.save(meta.state_dict(), tmp_path / "meta.pt")
    state = torch.load(tmp_path / "meta.pt", weights_only=True)
    other.load_state_dict(state)
    assert other.latest == meta.latest
    assert bool(meta.latest) == (steps > 0)
    assert other.summary() == meta.summary()
    if steps:
        assert f"meta-loss {meta.latest['meta_loss'].item():.4g};" in meta.summary()
    state["history"].pop("last", None)  # as states were before
    other.load_state_dict(state)
    is_kept = steps in (1, 7, 21)
    assert other.latest == (meta.latest if is_kept else {})
    assert other.history == meta.history


def test_a_state_that_is_none():
    with pytest.raises(InvalidValueError, match=r"`state` must be what state_dict.. returned, got one without"):
        calibrator().load_state_dict({})
