"""Samples that are looked at again: the gradient of all of them together, and nothing lost on resuming."""

import pytest
import torch
from torch import nn

import metacal
from metacal.errors import InvalidValueError
from metacal.metalearning.meta_memory import MetaMemory


def batch(seed, size=12):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (size,), generator=generator)


def calibrated(memory):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    smoothing = metacal.NonUniformLabelSmoothing(3, initial="uniform")
    return model, metacal.MetaCalibrator(model, model[2], smoothing, every=1, memory=memory)


def test_a_filled_up_batch_gives_the_gradient_of_all_its_samples():
    _, meta = calibrated(memory=30)
    for seed in (1, 2):  # the model is not trained in between: features are those of now
        meta.step(*batch(0), meta=batch(seed), lr=0.1)
    _, whole = calibrated(memory=0)
    whole.load_state_dict(meta.state_dict())
    earlier = [batch(3), batch(2), (batch(1)[0][:6], batch(1)[1][:6])]  # 12 + 12 + 6: the latest, up to 30
    together = tuple(torch.cat(parts) for parts in zip(*earlier, strict=True))
    found = meta.hypergradient(*batch(0), meta=batch(3), lr=0.1)
    expected = whole.hypergradient(*batch(0), meta=together, lr=0.1)
    alone = whole.hypergradient(*batch(0), meta=batch(3), lr=0.1)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found["strength"], alone["strength"], rtol=1e-3)


def test_looking_at_the_gradient_remembers_nothing():
    _, meta = calibrated(memory=30)
    meta.hypergradient(*batch(0), meta=batch(1), lr=0.1)
    assert meta.state_dict()["memory"] == {}


def test_a_resumed_run_remembers():
    def train(model, meta, seeds):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for seed in seeds:
            loss = meta.step(*batch(0), meta=batch(seed), lr=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model, meta = calibrated(memory=30)
    train(model, meta, range(4))
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, meta.state_dict()
    train(model, meta, range(4, 8))
    resumed, again = calibrated(memory=30)
    resumed.load_state_dict(weights)
    again.load_state_dict(state)
    train(resumed, again, range(4, 8))
    assert torch.equal(again.hyperparameters.strength, meta.hyperparameters.strength)
    forgetful, without = calibrated(memory=30)
    forgetful.load_state_dict(weights)
    without.load_state_dict({**state, "memory": {}})
    train(forgetful, without, range(4, 8))
    assert not torch.equal(without.hyperparameters.strength, meta.hyperparameters.strength)


def test_a_state_from_before_there_was_a_memory_is_read():
    _, meta = calibrated(memory=30)
    state = meta.state_dict()
    del state["memory"]
    meta.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:A meta-gradient was not finite")
def test_samples_that_are_not_finite_leave_again():
    _, meta = calibrated(memory=30)
    broken = torch.full((12, 4), torch.nan, dtype=torch.float64), batch(1)[1]
    meta.step(*batch(0), meta=broken, lr=0.1)
    for seed in range(5):
        meta.step(*batch(0), meta=batch(seed), lr=0.1)
    assert meta.skipped == 3, "the broken batch, and the two that it fills up: 12 + 12 + 6"
    assert meta.state_dict()["memory"]["features"].isfinite().all()


def test_large_batches_and_other_shapes_stay_as_they_are():
    memory = MetaMemory(8)
    memory.keep(torch.zeros(8, 2), torch.zeros(8, dtype=torch.long))
    for features in (torch.ones(9, 2), torch.ones(8, 2), torch.ones(3, 5)):
        labels = torch.ones(len(features), dtype=torch.long)
        assert memory.filled_up(features, labels)[0] is features
    assert len(memory.filled_up(torch.ones(3, 2), torch.ones(3, dtype=torch.long))[1]) == 8


def test_a_memory_is_a_number_of_samples():
    with pytest.raises(InvalidValueError, match="`memory` must be an integer >= 0, got -1"):
        calibrated(memory=-1)
