"""Plain PyTorch: three changed lines in the loop you have; digits with 120 labels, with and without."""

import torch
from comparison import BATCH, STEPS, arguments, batches, compare, digits, mlp, optimizer_and_schedule, three_ways
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal


def plain(seed: int, steps: int) -> nn.Module:
    data = digits(seed)
    torch.manual_seed(seed)
    model = mlp()
    optimizer, scheduler = optimizer_and_schedule(model, steps)
    train_loader = DataLoader(data.train, BATCH, shuffle=True, drop_last=True)
    for x, y in batches(train_loader, steps):
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model


def meta_calibrated(seed: int, steps: int) -> nn.Module:
    data = digits(seed)
    torch.manual_seed(seed)
    model = mlp()
    optimizer, scheduler = optimizer_and_schedule(model, steps)
    train_loader = DataLoader(data.train, BATCH, shuffle=True, drop_last=True)
    meta = metacal.MetaCalibrator(model, optimizer, meta=DataLoader(data.held_out, BATCH))
    for x, y in batches(train_loader, steps):
        loss = meta.step(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    meta.finish()
    return model


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    methods = three_ways(lambda seed, meta_calibrates: (meta_calibrated if meta_calibrates else plain)(seed, steps))
    compare("Plain PyTorch, digits, 120 labels", methods, options)
