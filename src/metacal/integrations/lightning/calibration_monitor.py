"""`CalibrationMonitor`: logs calibration of the validation set, and draws reliability and smoothing for the loggers."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.functional.arguments import check_integer, check_num_bins
from metacal.functional.inputs import as_rows, class_logits
from metacal.integrations.lightning.held_out import Targets, find_logits_layer, labels_of
from metacal.integrations.lightning.meta_calibration import MetaCalibration
from metacal.integrations.loggers import log_reliability, log_smoothing
from metacal.losses import AfterTemperature, CrossEntropyLoss
from metacal.metalearning.gather import joint_rows
from metacal.metalearning.head_tap import HeadTap
from metacal.metrics import ExpectedCalibrationError, NegativeLogLikelihood

MOST_SAMPLES = 50_000
"""Samples whose logits are kept for the refined NLL and the reliability diagram."""


class CalibrationMonitor(Callback):
    """Watches the logits of the validation set: numbers through ``self.log``, figures to the loggers.

    The numbers are ``val_ece``, ``val_nll`` and ``val_refined_nll``, the NLL after the best temperature (of the first
    50,000 samples of each process): what to choose a checkpoint by, ``ModelCheckpoint(monitor="val_refined_nll")``, if
    a temperature follows. The figures, a reliability diagram and (with `MetaCalibration` at work) the learned smoothing
    matrix, go to every logger that takes images: TensorBoard, MLflow, Weights & Biases. Under DDP the logged numbers
    are those of all ranks, the diagram that of the first rank's share. One logit per sample makes two classes; logits
    ``(n, T, K)`` are those of n T samples.

    Args:
        head: attribute path of the layer that returns the logits; None finds it, see `MetaCalibration`.
        targets: where the labels of a batch are; see `MetaCalibration`.
        num_bins: of the expected calibration error.
        class_names: for the smoothing matrix; None numbers them.
        every_n_epochs: how often figures are drawn; 0 never.
    """

    def __init__(
        self,
        head: str | None = None,
        *,
        targets: Targets = None,
        num_bins: int = 15,
        class_names: Sequence[str] | None = None,
        every_n_epochs: int = 1,
    ) -> None:
        check_num_bins(num_bins)
        check_integer("every_n_epochs", every_n_epochs, 0)
        self.head, self.targets, self.num_bins = head, targets, num_bins
        self.class_names, self.every_n_epochs = class_names, every_n_epochs
        self._tap: HeadTap | None = None
        self._watch: ExitStack | None = None
        self._metrics: dict[str, Any] = {}
        self._kept: list[tuple[Tensor, Tensor]] = []

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start anew."""
        self._tap, self._metrics, self._kept = None, {}, []

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Listen to the head."""
        if self._tap is None:
            self._tap = HeadTap(find_logits_layer(pl_module, self.head, batch))
        self._watch = ExitStack()
        self._watch.enter_context(self._tap.listening())

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch."""
        assert self._tap is not None and self._watch is not None
        self._watch.close()
        logits = class_logits(as_rows(self._tap.take()[1].detach().float()))
        labels = labels_of(batch, self.targets).reshape(-1).to(logits.device)
        if not self._metrics:
            options: dict[str, Any] = {"num_classes": logits.shape[1], "inputs": "logits"}
            self._metrics = {
                "val_ece": ExpectedCalibrationError(num_bins=self.num_bins, **options).to(logits.device),
                "val_nll": NegativeLogLikelihood(**options).to(logits.device),
            }
        for metric in self._metrics.values():
            metric.update(logits, labels)
        if sum(len(kept) for _, kept in self._kept) < MOST_SAMPLES:
            self._kept.append((logits.cpu(), labels.cpu()))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log, draw."""
        self._leave()
        if trainer.sanity_checking or not self._metrics:
            return
        for name, metric in self._metrics.items():
            pl_module.log(name, metric.compute(), on_step=False, on_epoch=True, batch_size=1)
        logits, targets = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        rows = joint_rows(logits.to(pl_module.device), targets.to(pl_module.device))[:2]
        refined = AfterTemperature(CrossEntropyLoss())(*rows)
        pl_module.log("val_refined_nll", refined, on_step=False, on_epoch=True, batch_size=1)
        is_due = self.every_n_epochs and (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if not is_due or not trainer.is_global_zero:
            return
        at_work = [callback for callback in trainer.callbacks if isinstance(callback, MetaCalibration)]  # type: ignore[attr-defined]
        for logger in trainer.loggers:
            log_reliability(logger, Predictions.from_logits(logits, targets), step=trainer.global_step)
            for callback in at_work:
                if callback.calibrator is not None:
                    log_smoothing(logger, callback.calibrator.hyperparameters, trainer.global_step, self.class_names)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the module as it was."""
        self._leave()

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._tap is not None:
            self._tap.remove()
            self._tap = None
