"""LightningModules as users write them, and a trainer that is silent."""

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

K = 3


def samples(n, seed):
    """Points whose class is uncertain, so that there is something to smooth."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator)
    noise = torch.randn(n, K, generator=generator)
    return TensorDataset(x, (2.0 * x[:, :K] + 2.0 * noise).argmax(dim=1))


def loader(n=48, seed=0, batch_size=12, **options):
    return DataLoader(samples(n, seed), batch_size=batch_size, **options)


class Plain(lightning.LightningModule):
    """Automatic optimisation; the network is an attribute, ``forward`` is not defined."""

    def __init__(self, lr=0.2, label_smoothing=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.lr, self.label_smoothing = lr, label_smoothing
        self.net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, K))
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y, label_smoothing=self.label_smoothing)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Manual(Plain):
    """The same by hand."""

    def __init__(self, **options):
        super().__init__(**options)
        self.automatic_optimization = False

    def training_step(self, batch):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        self.manual_backward(loss)
        optimizer.step()

    def on_train_epoch_end(self):
        self.lr_schedulers().step()


def trainer(folder, *callbacks, **options):
    options = {"max_epochs": 2, "logger": False, "enable_checkpointing": False, **options}
    return lightning.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        **{"devices": 1, **options},
    )
