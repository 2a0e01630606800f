"""Small models, batches and calibrators for the tests."""

from dataclasses import fields

import pytest
import torch
from torch import nn

from metacal import MetaCalibrator, OuterStep, ScalarLabelSmoothing

K = 3

both_ways = pytest.mark.parametrize("through", ["head", "model"])


class Net(nn.Module):
    """Normalisation, dropout and a linear head."""

    def __init__(self, outputs=K, norm=True, dropout=0.3):
        super().__init__()
        layers = [nn.Linear(5, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.ReLU(), nn.Dropout(dropout)]
        self.backbone = nn.Sequential(*layers)
        self.fc = nn.Linear(8, outputs)

    def forward(self, x):
        return self.fc(self.backbone(x))


def make_net(seed=0, **options):
    torch.manual_seed(seed)
    return Net(**options)


def batch(n, seed, classes=K, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=generator, dtype=dtype), torch.randint(classes, (n,), generator=generator)


def batches(count, n=12, seed=100, **options):
    return [batch(n, seed + i, **options) for i in range(count)]


def sgd(net, lr=0.1, **options):
    return torch.optim.SGD(net.parameters(), lr=lr, **options)


def calibrator(net=None, hyperparameters=None, *, meta=None, optimizer=None, lr=0.1, **options):
    """One that takes a meta step each iteration and remembers nothing; options are its own or those of `OuterStep`."""
    net = make_net() if net is None else net
    own = {field.name for field in fields(OuterStep)} - {"through"}
    outer = {"every": 1, "dense_start": 0, "memory": 0, **{name: options.pop(name) for name in own & set(options)}}
    return MetaCalibrator(
        net,
        sgd(net, lr) if optimizer is None else optimizer,
        [batch(10, 2)] if meta is None else meta,
        ScalarLabelSmoothing(K) if hyperparameters is None else hyperparameters,
        **{"outer": OuterStep(**outer), **options},
    )


def train(meta, optimizer, steps, *, start=0):
    """Losses of some steps on batches of their own."""
    losses = []
    for x, y in batches(steps + start)[start:]:
        loss = meta.step(x, y) if isinstance(meta, MetaCalibrator) else nn.functional.cross_entropy(meta(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
