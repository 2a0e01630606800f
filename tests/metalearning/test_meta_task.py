"""Samples that are looked at again: the gradient of all of them together, and nothing lost on resuming."""

import pytest
import torch
from tests.metalearning.models import both_ways, calibrator, sgd
from torch import nn

from metacal import NonUniformLabelSmoothing
from metacal.metalearning.meta_task import MetaMemory


def batch(seed, size=12):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=generator)


def calibrated(memory, through, seeds=(1, 2, 3)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    smoothing = NonUniformLabelSmoothing(3, initial="uniform")
    meta = calibrator(model, smoothing, meta=[batch(seed) for seed in seeds], memory=memory, through=through)
    return model, meta


@both_ways
def test_a_filled_up_batch_gives_the_gradient_of_all_its_samples(through):
    """Through the model, samples of before count in the objective but are not gone backward from."""
    _, meta = calibrated(30, through)
    for _ in range(2):  # the model is not trained in between: features and logits are those of now
        meta.step(*batch(0))
    _, whole = calibrated(0, through)
    whole.load_state_dict(meta.state_dict())
    earlier = [batch(3), batch(2), (batch(1)[0][:6], batch(1)[1][:6])]  # 12 + 12 + 6: the latest, up to 30
    together = tuple(torch.cat(parts) for parts in zip(*earlier, strict=True))
    found = meta.hypergradient(*batch(0), batch(3))
    expected = whole.hypergradient(*batch(0), together)
    alone = whole.hypergradient(*batch(0), batch(3))
    assert not torch.allclose(found["strength"], alone["strength"], rtol=1e-3)
    if through == "head":
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12)
    meta_loss = meta._path.hypergradient(meta._task, [part(meta)], batch(3)).meta_loss
    joint_loss = whole._path.hypergradient(whole._task, [part(whole)], together).meta_loss
    torch.testing.assert_close(meta_loss, joint_loss, rtol=1e-10, atol=0.0)


def part(meta):
    x, y = batch(0)
    return meta._path.run(x)[0].detach(), y


@both_ways
def test_looking_at_the_gradient_remembers_nothing(through):
    _, meta = calibrated(30, through)
    meta.hypergradient(*batch(0), batch(1))
    assert meta.state_dict()["memory"] == {}


@both_ways
def test_a_resumed_run_remembers(through):
    def train(model, meta, steps):
        optimizer = sgd(model)
        for _ in range(steps):
            loss = meta.step(*batch(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model, meta = calibrated(30, through, range(8))
    train(model, meta, 4)
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, meta.state_dict()
    train(model, meta, 4)
    resumed, again = calibrated(30, through, range(8))
    resumed.load_state_dict(weights)
    again.load_state_dict(state)
    train(resumed, again, 4)
    assert torch.equal(again.hyperparameters.strength, meta.hyperparameters.strength)
    forgetful, without = calibrated(30, through, range(8))
    forgetful.load_state_dict(weights)
    without.load_state_dict({**state, "memory": {}})
    train(forgetful, without, 4)
    assert not torch.equal(without.hyperparameters.strength, meta.hyperparameters.strength)


def test_a_state_from_before_there_was_a_memory_is_read():
    _, meta = calibrated(30, "head")
    meta.step(*batch(0))
    state = meta.state_dict()
    del state["memory"]
    meta.load_state_dict(state)
    assert meta.state_dict()["memory"] == {}


@both_ways
@pytest.mark.filterwarnings("ignore:A meta-gradient was not finite")
def test_samples_that_are_not_finite_leave_again(through):
    _, meta = calibrated(30, through)
    broken = torch.full((12, 4), torch.nan, dtype=torch.float64), batch(1)[1]
    meta.stream.meta = [broken, *(batch(seed) for seed in range(5))]
    for _ in range(6):
        meta.step(*batch(0))
    assert meta.skipped == 3, "the broken batch, and the two that it fills up: 12 + 12 + 6"
    assert meta.state_dict()["memory"]["features"].isfinite().all()


def test_large_batches_and_other_shapes_stay_as_they_are():
    memory = MetaMemory(8)
    memory.keep(torch.zeros(8, 2), torch.zeros(8, dtype=torch.long))
    for features in (torch.ones(9, 2), torch.ones(8, 2), torch.ones(3, 5)):
        labels = torch.ones(len(features), dtype=torch.long)
        assert memory.filled_up(features, labels)[0] is features
    assert len(memory.filled_up(torch.ones(3, 2), torch.ones(3, dtype=torch.long))[1]) == 8
