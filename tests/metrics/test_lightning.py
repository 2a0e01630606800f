"""A Lightning module that logs our metrics: the epoch's value is the function's over all of its batches."""

import pytest
import torch
from tests.functional import samples
from torch.utils.data import DataLoader, TensorDataset

from metacal import functional as F
from metacal import metrics as M

lightning = pytest.importorskip("lightning")


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(6, 4)
        self.ece = M.ExpectedCalibrationError(num_classes=4, inputs="logits")
        self.adaptive = M.AdaptiveCalibrationError(num_classes=4, inputs="logits")
        self.seen = []

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.head(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.head(x)
        self.seen.append((logits.detach(), y))
        self.ece(logits, y)
        self.adaptive(logits, y)
        self.log("ece", self.ece, on_step=False, on_epoch=True)
        self.log("adaptive", self.adaptive, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*srun.*", "ignore:.*barebones.*")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:.*isinstance\\(treespec.*")
def test_logged_values_are_those_of_the_functions(tmp_path):
    x = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, samples.multiclass(70, 4)[1]), batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
    )
    model = Classifier()
    trainer.fit(model, loader, loader)
    logits, targets = (torch.cat(parts) for parts in zip(*model.seen))
    assert len(targets) == 70
    expected = {
        "ece": F.expected_calibration_error(logits=logits, targets=targets),
        "adaptive": F.adaptive_calibration_error(logits=logits, targets=targets),
    }
    assert expected["ece"] > 0.01
    for name, value in expected.items():
        assert trainer.callback_metrics[name].item() == pytest.approx(value.item(), abs=1e-7)
