"""`MetaCalibration`: the callback that learns label smoothing while a LightningModule trains, unchanged."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from metacal.bf16 import check_bf16
from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.functional.arguments import check_inside, check_integer
from metacal.integrations.head_classes import default_smoothing
from metacal.integrations.head_rate import HeadRate
from metacal.integrations.labels import Targets, labels_of
from metacal.integrations.lightning.meta_data import find_stream, is_share, split_training_set
from metacal.integrations.lightning.up_to_head import UpToHead
from metacal.integrations.meta_stream import MetaStream
from metacal.metalearning import Hyperparameter, MetaCalibrator
from metacal.metalearning.checks import find_head

PATIENCE = 3
"""Batches without a backward pass that the callback could see before it complains."""

SHARDED = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


class MetaCalibration(Callback):
    """Meta-calibrates whatever ``training_step`` does, as long as its loss is the cross-entropy of the head's output.

    Before each backward pass the callback takes a meta step, if one is due, and exchanges the gradient that flows into
    the logits for that of the learned loss. The module's loss, and what it logs, stay what they are: cross-entropy with
    hard labels. Terms that do not depend on the logits (weight penalties, auxiliary losses of other layers) stay too.
    Meta batches go through ``training_step`` as far as the head, so that they are treated like training batches.

    Works with automatic and manual optimisation (``self.manual_backward``), gradient accumulation, mixed precision,
    DDP; omega and the place in the meta set are saved in, and resumed from, the trainer's checkpoints.

    Args:
        head: attribute path of the layer that returns the logits, such as ``"model.fc"``.
        meta: held-out samples: a loader, a dataset, or a share of the training set to split off, e.g. ``0.1``. None
            asks ``meta_dataloader()`` of the datamodule, or of the module.
        hyperparameters: what is learned; default `metacal.NonUniformLabelSmoothing`.
        targets: where the labels of a batch are: a key, a position, or a function of the batch. None looks at the
            second of a pair, or at the usual keys of a dictionary.
        meta_batch_size: samples in a meta batch (of each rank); None: the loader's.
        logs: log the meta-loss and the mean strengths with ``self.log`` as ``meta/...``.
        seed: of split, order and meta steps.
        **settings: of `metacal.MetaCalibrator`: ``objective``, ``base_loss``, ``every``, ``meta_lr``, ``preset``, ...

    Attributes:
        calibrator: the `metacal.MetaCalibrator` at work; None before the first fit.
    """

    def __init__(
        self,
        head: str,
        meta: Any = None,
        *,
        hyperparameters: Hyperparameter | list[Hyperparameter] | dict[str, Hyperparameter] | None = None,
        targets: Targets = None,
        meta_batch_size: int | None = None,
        logs: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if not isinstance(head, str):
            raise InvalidTypeError(f"`head` must be an attribute path such as 'model.fc', got {type(head).__name__}.")
        if is_share(meta):
            check_inside("meta", meta)
        if meta_batch_size is not None:
            check_integer("meta_batch_size", meta_batch_size, 1)
        check_integer("seed", seed, 0)
        self.head, self.meta, self.hyperparameters, self.targets = head, meta, hyperparameters, targets
        self.meta_batch_size, self.logs, self.seed, self.settings = meta_batch_size, logs, seed, settings
        self.calibrator: MetaCalibrator | None = None
        self._stream: MetaStream | Iterator[Any] | None = None
        self._held_out: Any = None
        self._saved: dict[str, Any] | None = None
        self._rate: HeadRate | None = None
        self._watch: ExitStack | None = None
        self._calls: list[Any] = []
        self._labels: Tensor | None = None
        self._boundary = True
        self._unseen = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the head, split the training set if asked to, and take up saved omega."""
        strategy = type(trainer.strategy).__name__
        if strategy in SHARDED:
            raise InvalidValueError(f"`strategy` must keep the head in one piece (DDP does), got {strategy}.")
        if "bf16" in trainer.precision:
            check_bf16(trainer.strategy.root_device.type, instead='Trainer(precision="32-true")')
        head = find_head(pl_module, self.head)
        if is_share(self.meta):
            self._held_out = split_training_set(trainer, self.meta, self.seed)
        else:
            self._held_out = self.meta
        learned = default_smoothing(head) if self.hyperparameters is None else copy.deepcopy(self.hyperparameters)
        model = UpToHead(pl_module, head, trainer.precision_plugin.train_step_context)
        self.calibrator = MetaCalibrator(model, head, learned, seed=self.seed, **self.settings)
        self._stream, self._rate, self._unseen = None, HeadRate(head), 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the meta set."""
        self._stream = find_stream(self._held_out, trainer, pl_module, batch_size=self.meta_batch_size, seed=self.seed)
        if self._saved is not None:
            assert self.calibrator is not None
            self.calibrator.load_state_dict(self._saved["calibrator"])
            if isinstance(self._stream, MetaStream):
                self._stream.go_to(self._saved["drawn"])
            self._saved = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Listen to the head."""
        self._labels = labels_of(batch, self.targets)
        accumulates = pl_module.automatic_optimization and (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        self._boundary = not accumulates or trainer.is_last_batch
        self._unseen += 1
        self._listen()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Take a meta step, if one is due, and exchange the gradient."""
        if self._watch is None or self._labels is None:
            return
        if not self._calls and not pl_module.automatic_optimization:
            return  # of another loss in a step by hand, such as a penalty or that of another network
        assert self.calibrator is not None
        self._watch.close()
        self._unseen = 0
        meta = self._meta_batches(trainer, pl_module)
        assert self._rate is not None
        lr = self._rate(trainer.optimizers)
        self.calibrator.steer(loss, self._labels, meta=meta, lr=lr, boundary=self._boundary)
        self._listen()  # an optimizer may run the step again

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop listening; log."""
        self._stop_listening()
        if self._unseen >= PATIENCE and not pl_module.automatic_optimization:
            raise InvalidValueError(
                "`training_step` must run the head and go backward with self.manual_backward(loss), got a loss that "
                "the callback cannot see."
            )
        if self.logs and trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            figures = self._figures()
            if figures:
                pl_module.log_dict(figures, on_step=True, on_epoch=False, batch_size=1)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the module as it was."""
        self._stop_listening()
        if self.calibrator is not None:
            self.calibrator.remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the module as it was."""
        self.on_fit_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Omega, its optimizer, and the place in the meta set."""
        if self.calibrator is None:
            return {}
        drawn = self._stream.drawn if isinstance(self._stream, MetaStream) else 0
        return {"calibrator": self.calibrator.state_dict(), "drawn": drawn}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until the fit begins."""
        self._saved = state_dict or None

    def export(self, path: str | Path | None = None) -> dict[str, Any]:
        """What was learned; see `metacal.MetaCalibrator.export`."""
        return self._at_work().export(path)

    def summary(self) -> str:
        """One line on how the learning went."""
        return self._at_work().summary()

    def _at_work(self) -> MetaCalibrator:
        if self.calibrator is None:
            raise InvalidValueError("The callback must have been used in a fit: pass it to Trainer(callbacks=[...]).")
        return self.calibrator

    def _listen(self) -> None:
        self._watch = ExitStack()
        self._calls = self._watch.enter_context(self._at_work().watching())

    def _stop_listening(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._labels = None

    def _meta_batches(self, trainer: Trainer, module: LightningModule) -> Iterator[Any]:
        """Meta batches as the module gets its training batches, with their labels."""
        assert self._stream is not None
        for raw in self._stream:
            batch = trainer.precision_plugin.convert_input(raw)
            batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
            batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
            yield (batch,), labels_of(batch, self.targets)

    def _figures(self) -> dict[str, Tensor]:
        return {f"meta/{name}": value for name, value in self._at_work().latest.items()}
