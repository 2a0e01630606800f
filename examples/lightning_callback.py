"""Lightning: one callback, the LightningModule stays as it is."""

import logging
import warnings

import lightning
import torch
from comparison import BATCH, STEPS, arguments, compare, digits, mlp, optimizer_and_schedule, three_ways
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from metacal.integrations.lightning import MetaCalibration


class Classifier(lightning.LightningModule):
    """Knows nothing of meta-calibration."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.net = mlp()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer, scheduler = optimizer_and_schedule(self, self.steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def train(seed: int, steps: int, meta_calibrates: bool) -> nn.Module:
    data = digits(seed)
    torch.manual_seed(seed)
    module = Classifier(steps)
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        callbacks=[MetaCalibration()] if meta_calibrates else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        check_val_every_n_epoch=50,
    )
    train_loader = DataLoader(data.train, BATCH, shuffle=True, drop_last=True)
    trainer.fit(module, train_loader, DataLoader(data.held_out, BATCH))
    return module.net


if __name__ == "__main__":
    options = arguments(__doc__)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    steps = 20 if options.quick else STEPS
    methods = three_ways(lambda seed, meta_calibrates: train(seed, steps, meta_calibrates))
    compare("Lightning, digits, 120 labels", methods, options)
