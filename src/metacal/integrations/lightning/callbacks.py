"""`MetaCalibration` learns while a LightningModule trains; `CalibrationMonitor` logs its calibration."""

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from metacal.bf16 import check_bf16
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation.predictions import Predictions
from metacal.functional.arguments import check_choice, check_integer, check_num_bins
from metacal.functional.inputs import as_rows, class_logits
from metacal.integrations.lightning.held_out import (
    Targets,
    UpToHead,
    as_steps_get_it,
    find_held_out,
    find_logits_layer,
    labels_of,
    with_labels,
)
from metacal.integrations.loggers import log_reliability, log_smoothing
from metacal.losses import AfterTemperature, CrossEntropyLoss
from metacal.metalearning import Finish, Hyperparameter, MetaCalibrator
from metacal.metalearning.gather import joint_rows
from metacal.metalearning.head_tap import HeadTap
from metacal.metalearning.meta_stream import MetaStream
from metacal.metrics import ExpectedCalibrationError, NegativeLogLikelihood

PATIENCE = 3
"""Batches without a backward pass that the callback could see before it complains."""

SHARDED = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
MOST_SAMPLES = 50_000
"""Samples whose logits are kept for the refined NLL and the reliability diagram."""


class MetaCalibration(Callback):
    """Meta-calibrates any ``training_step`` whose loss is the cross-entropy of the logits.

    Before each backward pass the callback takes a meta step, if one is due, and exchanges the gradient that flows into
    the logits for that of the learned loss. The loss itself, what is logged, and terms that do not depend on the logits
    stay what they are. Held-out batches go through the module's own steps as far as the logits. When training ends, one
    temperature is fitted on the held-out samples and folded into the last layer.

    Works with automatic and manual optimisation (``self.manual_backward``), gradient accumulation, mixed precision,
    DDP; omega and the place among the held-out samples are saved in, and resumed from, the trainer's checkpoints.

    Args:
        meta: a loader of held-out samples, or any iterable of batches. None asks ``meta_dataloader()`` of the
            datamodule or the module, if there is one; else it is the validation loader.
        head: attribute path of the layer that returns the logits, such as ``"model.fc"``. None finds the one whose
            output ``forward`` returns, or the module's only network where ``forward`` is not defined.
        hyperparameters: what is learned; default `metacal.LogitPenalty`.
        targets: where the labels of a batch are: a key, a position, or a function of the batch. None takes the second
            of a pair, or the usual keys of a dictionary.
        finish: fold a temperature at the end; ``"best"`` first loads the weights of `ModelCheckpoint`'s best
            checkpoint; False leaves the module as training leaves it.
        logs: log the meta-loss and the mean strengths with ``self.log`` as ``meta/...``.
        seed: of order and meta steps.
        **settings: of `metacal.MetaCalibrator`: ``objective``, ``through``, ``base_loss``, ``outer``.

    Attributes:
        calibrator: the `metacal.MetaCalibrator` at work; None before the first fit.
        finished: what was done at the end, a `metacal.Finish`; None before.
    """

    def __init__(
        self,
        meta: Any = None,
        *,
        head: str | None = None,
        hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter] | None = None,
        targets: Targets = None,
        finish: bool | str = True,
        logs: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if head is not None and not isinstance(head, str):
            raise InvalidTypeError(f"`head` must be an attribute path such as 'model.fc', got {type(head).__name__}.")
        if not isinstance(finish, bool):
            check_choice("finish", finish, ("best",))
        check_integer("seed", seed, 0)
        self.meta, self.head, self.hyperparameters, self.targets = meta, head, hyperparameters, targets
        self.finish, self.logs, self.seed, self.settings = finish, logs, seed, settings
        self.calibrator: MetaCalibrator | None = None
        self.finished: Finish | None = None
        self._saved: dict[str, Any] | None = None
        self._watch = ExitStack()
        self._calls: list[Any] = []
        self._batch: Any = None
        self._labels: Tensor | None = None
        self._boundary = True
        self._unseen = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse unsupported settings before training."""
        strategy = type(trainer.strategy).__name__
        if strategy in SHARDED:
            raise InvalidValueError(f"`strategy` must keep the model in one piece (DDP does), got {strategy}.")
        if "bf16" in trainer.precision:
            check_bf16(trainer.strategy.root_device.type, instead='Trainer(precision="32-true")')
        if self.finish == "best" and not isinstance(trainer.checkpoint_callback, ModelCheckpoint):
            raise InvalidValueError("`finish` must be True or False without a ModelCheckpoint callback, got 'best'.")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Build the calibrator: optimizers and loaders exist now, and a checkpoint has been restored."""
        batches, is_validation = find_held_out(self.meta, trainer, pl_module)
        meta = MetaStream(batches, seed=self.seed, split=partial(with_labels, targets=self.targets))
        (few,), _ = meta.peek()
        head = find_logits_layer(pl_module, self.head, as_steps_get_it(few, pl_module, trainer))
        model = UpToHead(pl_module, head, trainer, validates=is_validation)
        settings = {"head": None if self.head is None else head, "seed": self.seed, **self.settings}
        learned = copy.deepcopy(self.hyperparameters)
        self.calibrator = MetaCalibrator(model, trainer.optimizers, meta, learned, **settings)
        self.finished, self._unseen = None, 0
        if self._saved is not None:
            self.calibrator.load_state_dict(self._saved)
            self._saved = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start recording the head."""
        self._batch, self._labels = batch, labels_of(batch, self.targets)
        accumulates = pl_module.automatic_optimization and (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        self._boundary = not accumulates or trainer.is_last_batch
        self._unseen += 1
        self._listen()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Take a meta step, if one is due, and replace the gradient."""
        if self._labels is None:
            return
        if not self._calls and not pl_module.automatic_optimization:
            return  # of another loss in a step by hand, such as a penalty or that of another network
        self._watch.close()
        self._unseen = 0
        self._at_work().steer(loss, self._labels, boundary=self._boundary, x=(self._batch, True))
        self._listen()  # an optimizer may run the step again

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop recording, and log."""
        self._stop_listening()
        if self._unseen >= PATIENCE and not pl_module.automatic_optimization:
            raise InvalidValueError(
                "`training_step` must run the head and go backward with self.manual_backward(loss), got a loss that "
                "the callback cannot see."
            )
        if self.logs and trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            figures = {f"meta/{name}": value for name, value in self._at_work().latest.items()}
            if figures:
                pl_module.log_dict(figures, on_step=True, on_epoch=False, batch_size=1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fold a temperature, and log what was learned and done."""
        calibrator = self._at_work()
        best = trainer.checkpoint_callback.best_model_path if self.finish == "best" else ""  # type: ignore[union-attr]
        if best:  # none, if nothing was saved
            pl_module.load_state_dict(trainer.strategy.load_checkpoint(best)["state_dict"])
        self.finished = calibrator.finish() if self.finish else None
        rank_zero_info("\n".join(map(str, filter(None, (calibrator.summary(), self.finished)))))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the module."""
        self._stop_listening()
        if self.calibrator is not None:
            self.calibrator.remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the module."""
        self.on_fit_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Omega, its optimizer, and the position in the held-out samples."""
        return {} if self.calibrator is None else self.calibrator.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until training starts."""
        self._saved = state_dict or None

    def _at_work(self) -> MetaCalibrator:
        assert self.calibrator is not None
        return self.calibrator

    def _listen(self) -> None:
        self._calls = self._watch.enter_context(self._at_work().watching())

    def _stop_listening(self) -> None:
        self._watch.close()
        self._batch = self._labels = None


class CalibrationMonitor(Callback):
    """Monitors validation logits: numbers through ``self.log``, figures to the loggers.

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
        self._watch = ExitStack()
        self._metrics: dict[str, Any] = {}
        self._kept: list[tuple[Tensor, Tensor]] = []

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the statistics."""
        self._tap, self._metrics, self._kept = None, {}, []

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Start recording the head."""
        if self._tap is None:
            self._tap = HeadTap(find_logits_layer(pl_module, self.head, batch))
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
        """Add the batch."""
        assert self._tap is not None
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
        """Log numbers and figures."""
        self._leave()
        if trainer.sanity_checking or not self._metrics:
            return
        logits, targets = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        rows = joint_rows(logits.to(pl_module.device), targets.to(pl_module.device))[:2]
        figures = {name: metric.compute() for name, metric in self._metrics.items()}
        figures["val_refined_nll"] = AfterTemperature(CrossEntropyLoss())(*rows)
        pl_module.log_dict(figures, on_step=False, on_epoch=True, batch_size=1)
        is_due = self.every_n_epochs and (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if not is_due or not trainer.is_global_zero:
            return
        learning = [each.calibrator for each in trainer.callbacks if isinstance(each, MetaCalibration)]  # type: ignore[attr-defined]
        for logger in trainer.loggers:
            log_reliability(logger, Predictions.from_logits(logits, targets), step=trainer.global_step)
            for calibrator in filter(None, learning):
                log_smoothing(logger, calibrator.hyperparameters, trainer.global_step, self.class_names)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the module."""
        self._leave()

    def _leave(self) -> None:
        self._watch.close()
        if self._tap is not None:
            self._tap.remove()
            self._tap = None
