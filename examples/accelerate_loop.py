"""Hugging Face Accelerate: prepare model, optimizer and loaders as ever, and let `MetaCalibrator` give the loss."""

import torch
from accelerate import Accelerator
from comparison import BATCH, STEPS, Said, arguments, compare, digits, mlp, optimizer_and_schedule
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal


def train(seed: int, steps: int, meta_calibrates: bool) -> Said:
    data = digits(seed)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(seed)
    net = mlp()
    optimizer, scheduler = optimizer_and_schedule(net, steps)
    dataset = data.train if meta_calibrates else data.labelled
    model, optimizer, loader, meta_loader = accelerator.prepare(
        net,
        optimizer,
        DataLoader(dataset, BATCH, shuffle=True, drop_last=True),
        DataLoader(data.meta, BATCH, shuffle=True),
    )
    batches = metacal.data.cycle(loader)

    smoothing = metacal.NonUniformLabelSmoothing(num_classes=10)
    meta = metacal.MetaCalibrator(model, head=accelerator.unwrap_model(model)[-1], hyperparameters=smoothing)
    meta_batches = metacal.data.cycle(meta_loader)

    for _ in range(steps):
        x, y = next(batches)
        if meta_calibrates:
            loss = meta.step(x, y, meta=meta_batches, lr=scheduler.get_last_lr()[0])
        else:
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        return net.eval()(data.test.tensors[0]), data.test.tensors[1]


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    methods = {
        "cross-entropy": lambda seed: train(seed, steps, False),
        "meta-calibrated": lambda seed: train(seed, steps, True),
    }
    compare("Accelerate, digits, 120 labels", methods, options)
