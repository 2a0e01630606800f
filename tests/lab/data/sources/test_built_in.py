"""Digits, and simulated points that follow their oracle."""

import torch

from metacal.lab.data import load_dataset, simulated_oracle


def test_digits():
    digits = load_dataset("digits")
    assert digits.train.inputs.dtype is torch.uint8
    assert int(digits.train.inputs.max()) == 255
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1438, 359, 10)
    assert torch.equal(digits.test.inputs, load_dataset("digits").test.inputs)
    assert int(torch.bincount(digits.test.targets).min()) >= 34
    assert not digits.augment


def test_simulated_data_follow_their_oracle():
    data = load_dataset("simulated", n_train=200, n_test=20_000, seed=1)
    weight, bias = simulated_oracle(seed=1)
    probs = torch.sigmoid(data.test.inputs.double() @ weight + bias)
    assert abs(float(probs.mean() - data.test.targets.double().mean())) < 0.015
    sure = probs > 0.9
    assert abs(float(data.test.targets[sure].double().mean() - probs[sure].mean())) < 0.02
    more = load_dataset("simulated", n_train=500, n_test=20_000, seed=1)
    assert torch.equal(more.train.inputs[:200], data.train.inputs)
    assert torch.equal(more.train.targets[:200], data.train.targets)
    assert torch.equal(more.test.inputs, data.test.inputs)
    assert not torch.equal(load_dataset("simulated", seed=2).train.inputs[:200], data.train.inputs)


def test_simulated_oracles_spread_as_stated():
    oracles = [simulated_oracle(seed) for seed in range(2000)]
    weights = torch.stack([weight for weight, _ in oracles])
    biases = torch.stack([bias for _, bias in oracles])
    assert abs(float(weights.std()) - 2.5) < 0.15
    assert abs(float(biases.std()) - 0.5) < 0.04
