"""Lightning Fabric: the wrapped model goes to `MetaCalibrator` as it is; figures go to Fabric's logger."""

import tempfile

import torch
from comparison import BATCH, STEPS, Said, arguments, compare, digits, mlp, optimizer_and_schedule
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger
from torch.nn import functional
from torch.utils.data import DataLoader

import metacal
from metacal.evaluation.predictions import Predictions
from metacal.integrations.loggers import log_reliability, log_smoothing


def train(seed: int, steps: int, meta_calibrates: bool, folder: str) -> Said:
    data = digits(seed)
    logger = TensorBoardLogger(folder, name=f"{'meta' if meta_calibrates else 'plain'}-{seed}")
    fabric = Fabric(accelerator="cpu", devices=1, loggers=logger)
    fabric.launch()
    torch.manual_seed(seed)
    net = mlp()
    optimizer, scheduler = optimizer_and_schedule(net, steps)
    model, optimizer = fabric.setup(net, optimizer)
    dataset = data.train if meta_calibrates else data.labelled
    loader = fabric.setup_dataloaders(DataLoader(dataset, BATCH, shuffle=True, drop_last=True))
    batches = metacal.data.cycle(loader)

    smoothing = metacal.NonUniformLabelSmoothing(num_classes=10)
    meta = metacal.MetaCalibrator(model, head=net[-1], hyperparameters=smoothing)
    meta_batches = metacal.data.cycle(fabric.setup_dataloaders(DataLoader(data.meta, BATCH, shuffle=True)))

    for step in range(steps):
        x, y = next(batches)
        if meta_calibrates:
            loss = meta.step(x, y, meta=meta_batches, lr=scheduler.get_last_lr()[0])
        else:
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            fabric.log_dict({"loss": loss.detach(), **{f"meta/{k}": v for k, v in meta.latest.items()}}, step)
    with torch.no_grad():
        logits, targets = net.eval()(data.test.tensors[0]), data.test.tensors[1]
    log_reliability(logger, Predictions.from_logits(logits, targets), steps)
    log_smoothing(logger, meta.hyperparameters, steps)
    logger.finalize("success")
    return logits, targets


if __name__ == "__main__":
    options = arguments(__doc__)
    steps = 20 if options.quick else STEPS
    with tempfile.TemporaryDirectory() as folder:
        methods = {
            "cross-entropy": lambda seed: train(seed, steps, False, folder),
            "meta-calibrated": lambda seed: train(seed, steps, True, folder),
        }
        compare("Fabric, digits, 120 labels", methods, options)
