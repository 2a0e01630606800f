"""Lightning: one callback, the LightningModule stays as it is."""

import logging
import warnings

import lightning
import torch
from comparison import BATCH, STEPS, Said, arguments, compare, digits, mlp, optimizer_and_schedule
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

    def configure_optimizers(self):
        optimizer, scheduler = optimizer_and_schedule(self, self.steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def train(seed: int, steps: int, meta_calibrates: bool) -> Said:
    data = digits(seed)
    torch.manual_seed(seed)
    module = Classifier(steps)
    callbacks = [MetaCalibration(head="net.4", meta=DataLoader(data.meta, BATCH))] if meta_calibrates else []
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    dataset = data.train if meta_calibrates else data.labelled
    trainer.fit(module, DataLoader(dataset, BATCH, shuffle=True, drop_last=True))
    with torch.no_grad():
        return module.net.eval()(data.test.tensors[0]), data.test.tensors[1]


if __name__ == "__main__":
    options = arguments(__doc__)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    steps = 20 if options.quick else STEPS
    methods = {
        "cross-entropy": lambda seed: train(seed, steps, False),
        "meta-calibrated": lambda seed: train(seed, steps, True),
    }
    compare("Lightning, digits, 120 labels", methods, options)
