"""Hugging Face Accelerate: prepare model, optimizer and loaders as ever, and let `MetaCalibrator` give the loss."""

import torch
from accelerate import Accelerator
from comparison import BATCH, STEPS, arguments, batches, compare, digits, mlp, optimizer_and_schedule, three_ways
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal


def train(seed: int, steps: int, meta_calibrates: bool) -> nn.Module:
    data = digits(seed)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(seed)
    net = mlp()
    optimizer, scheduler = optimizer_and_schedule(net, steps)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        net,
        optimizer,
        DataLoader(data.train, BATCH, shuffle=True, drop_last=True),
        DataLoader(data.held_out, BATCH),
    )
    meta = metacal.MetaCalibrator(model, optimizer, meta=val_loader)
    for x, y in batches(train_loader, steps):
        loss = meta.step(x, y) if meta_calibrates else functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
    if meta_calibrates:
        meta.finish()
    return net


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    methods = three_ways(lambda seed, meta_calibrates: train(seed, steps, meta_calibrates))
    compare("Accelerate, digits, 120 labels", methods, options)
