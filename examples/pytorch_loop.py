"""Plain PyTorch: three added lines in the loop you have. Digits with 120 labels, with and without meta-calibration."""

import torch
from comparison import BATCH, STEPS, Said, arguments, compare, digits, mlp, optimizer_and_schedule
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal


def plain(seed: int, steps: int) -> Said:
    """Cross-entropy on all 120 labels."""
    data = digits(seed)
    torch.manual_seed(seed)
    model = mlp()
    optimizer, scheduler = optimizer_and_schedule(model, steps)
    batches = metacal.data.cycle(DataLoader(data.labelled, BATCH, shuffle=True, drop_last=True))
    for _ in range(steps):
        x, y = next(batches)
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return predict(model, data)


def meta_calibrated(seed: int, steps: int) -> Said:
    """80 labels to train on, 40 to look at."""
    data = digits(seed)
    torch.manual_seed(seed)
    model = mlp()
    optimizer, scheduler = optimizer_and_schedule(model, steps)
    batches = metacal.data.cycle(DataLoader(data.train, BATCH, shuffle=True, drop_last=True))
    smoothing = metacal.NonUniformLabelSmoothing(num_classes=10)
    meta = metacal.MetaCalibrator(model, head=model[-1], hyperparameters=smoothing)
    meta_batches = metacal.data.cycle(DataLoader(data.meta, BATCH, shuffle=True))
    for _ in range(steps):
        x, y = next(batches)
        loss = meta.step(x, y, meta=meta_batches, lr=scheduler.get_last_lr()[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return predict(model, data)


@torch.no_grad()
def predict(model: torch.nn.Module, data) -> Said:
    x, y = data.test.tensors
    return model.eval()(x), y


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    methods = {
        "cross-entropy": lambda seed: plain(seed, steps),
        "meta-calibrated": lambda seed: meta_calibrated(seed, steps),
    }
    compare("Plain PyTorch, digits, 120 labels", methods, options)
