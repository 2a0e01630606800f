"""Lightning Fabric: the wrapped model goes to `MetaCalibrator` as it is; figures go to Fabric's logger."""

import tempfile

import torch
from comparison import (
    BATCH,
    STEPS,
    arguments,
    batches,
    compare,
    digits,
    mlp,
    optimizer_and_schedule,
    predict,
    three_ways,
)
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal
from metacal.evaluation.predictions import Predictions
from metacal.integrations.loggers import log_reliability, log_smoothing


def train(seed: int, steps: int, meta_calibrates: bool, folder: str) -> nn.Module:
    data = digits(seed)
    logger = TensorBoardLogger(folder, name=f"{'meta' if meta_calibrates else 'plain'}-{seed}")
    fabric = Fabric(accelerator="cpu", devices=1, loggers=logger)
    fabric.launch()
    torch.manual_seed(seed)
    net = mlp()
    optimizer, scheduler = optimizer_and_schedule(net, steps)
    model, optimizer = fabric.setup(net, optimizer)
    train_loader = fabric.setup_dataloaders(DataLoader(data.train, BATCH, shuffle=True, drop_last=True))
    meta = metacal.MetaCalibrator(model, optimizer, meta=DataLoader(data.held_out, BATCH))
    for step, (x, y) in enumerate(batches(train_loader, steps)):
        loss = meta.step(x, y) if meta_calibrates else functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            fabric.log_dict({"loss": loss.detach(), **{f"meta/{k}": v for k, v in meta.latest.items()}}, step)
    if meta_calibrates:
        meta.finish()
        log_smoothing(logger, meta.hyperparameters, steps)
    log_reliability(logger, Predictions.from_logits(*predict(net, seed)), steps)
    logger.finalize("success")
    return net


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    with tempfile.TemporaryDirectory() as folder:
        methods = three_ways(lambda seed, meta_calibrates: train(seed, steps, meta_calibrates, folder))
        compare("Fabric, digits, 120 labels", methods, options)
