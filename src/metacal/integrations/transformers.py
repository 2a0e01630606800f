"""Hugging Face Transformers: a `Trainer` that meta-calibrates sequence and image classifiers."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from metacal.bf16 import check_bf16
from metacal.errors import InvalidValueError, needs
from metacal.functional.calibration_errors import expected_calibration_error
from metacal.functional.proper_scores import brier_score, negative_log_likelihood
from metacal.losses import AfterTemperature, CrossEntropyLoss
from metacal.metalearning import Finish, MetaCalibrator

with needs("transformers"):
    from transformers import EvalPrediction, Trainer

FILE = "meta_calibration.pt"


class MetaCalibrationMixin:
    """The additions of `MetaCalibrationTrainer` to `transformers.Trainer`; put it before the trainer class.

    The trainer's loss, and what it logs, stay what they are; the gradient that flows into the logits is exchanged for
    that of the learned loss (see `metacal.MetaCalibrator.steer`). When `train` ends, one temperature is fitted on the
    held-out samples and folded into the last layer: the saved model is a plain one. Omega and the place among the
    held-out samples are saved in, and resumed from, the trainer's checkpoints.

    Args:
        *args: of the trainer.
        meta_dataset: held-out samples, like ``train_dataset``; default ``eval_dataset``.
        meta_calibration: settings of `metacal.MetaCalibrator` (``hyperparameters``, ``objective``, ``outer``, ...);
            also ``batch_size`` of held-out batches, default that of training.
        finish: fold a temperature at the end; False leaves the model as training leaves it.
        **kwargs: of the trainer.

    Attributes:
        calibrator: the `metacal.MetaCalibrator` at work; None before the first step.
        finished: what was done at the end, a `metacal.Finish`; None before.
    """

    calibrator: MetaCalibrator | None
    finished: Finish | None

    def __init__(
        self: Any,
        *args: Any,
        meta_dataset: Any = None,
        meta_calibration: Mapping[str, Any] | None = None,
        finish: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.meta_dataset = self.eval_dataset if meta_dataset is None else meta_dataset
        if self.meta_dataset is None or isinstance(self.meta_dataset, dict):
            got = "none" if self.meta_dataset is None else f"those named {', '.join(self.meta_dataset)}"
            raise InvalidValueError(
                f"`meta_dataset` must be a dataset of held-out samples; by default it is the `eval_dataset`, got {got}."
            )
        dtypes = {parameter.dtype for parameter in self.model.parameters()}
        if self.accelerator.mixed_precision == "bf16" or torch.bfloat16 in dtypes:
            check_bf16(self.args.device.type, instead="bf16=False and a model in float32")
        self.meta_calibration, self.finish = dict(meta_calibration or {}), finish
        self.calibrator = self.finished = self._saved_meta = None

    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Train as the trainer does, then fold a temperature into the model (the best one, if it was loaded)."""
        self.calibrator = self.finished = None
        try:
            result = super().train(*args, **kwargs)  # type: ignore[misc]
            if self.finish and self.calibrator is not None:
                done = self.finished = self.calibrator.finish()
                scores = {"nll_before": done.before.nll, "nll_after": done.after.nll}
                scores |= {"ece_before": done.before.ece, "ece_after": done.after.ece}
                said = {"temperature": done.temperature, "is_folded": float(done.is_folded), **scores}
                self.log({f"meta_{name}": value for name, value in said.items()})
        finally:
            if self.calibrator is not None:
                self.calibrator.remove()
        return result

    def compute_loss(
        self: Any, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Return the trainer's own loss; in training, the gradient of the learned loss replaces its gradient."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        labels = inputs.get("labels")
        if labels is None:
            raise InvalidValueError(f"`inputs` must hold labels, got {', '.join(inputs) or 'nothing'} alone.")
        if self.calibrator is None:
            self.calibrator = self._begin(self.accelerator.unwrap_model(model))
        calibrator: MetaCalibrator = self.calibrator
        with calibrator.watching():
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)  # type: ignore[misc]
        calibrator.steer(loss, labels, boundary=self.accelerator.sync_gradients)
        return (loss, outputs) if return_outputs else loss

    def log(self: Any, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the meta-loss and the mean strengths to the training logs."""
        if "loss" in logs and self.calibrator is not None:
            logs = {**logs, **{f"meta_{name}": float(value) for name, value in self.calibrator.latest.items()}}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _begin(self: Any, model: nn.Module) -> MetaCalibrator:
        """Build the calibrator at the first step, when there is an optimizer; restore it when resuming."""
        if self.args.n_gpu > 1:
            raise InvalidValueError(
                f"`model` must run on one GPU per process, got {self.args.n_gpu}; start it with torchrun or accelerate."
            )
        settings = {"seed": self.args.seed, **self.meta_calibration}
        meta = DataLoader(
            self.meta_dataset,
            batch_size=settings.pop("batch_size", self.args.train_batch_size),
            collate_fn=self._get_collator_with_removed_columns(self.data_collator, description="meta"),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
        )
        learned = copy.deepcopy(settings.pop("hyperparameters", None))
        calibrator = MetaCalibrator(model, self.optimizer, meta, learned, **settings)
        if calibrator.output_layer is None and self.accelerator.native_amp:
            raise InvalidValueError(
                f"`model` must have a layer that returns its logits to be trained in {self.accelerator.mixed_precision}"
                f", got {type(model).__name__}, which has none; train it in float32."
            )
        if self._saved_meta is not None:
            calibrator.load_state_dict(self._saved_meta)
            self._saved_meta = None
        return calibrator

    def _save_optimizer_and_scheduler(self: Any, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        if self.calibrator is not None and self.args.should_save:
            torch.save(self.calibrator.state_dict(), Path(output_dir) / FILE)

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        path = None if checkpoint is None else Path(checkpoint) / FILE
        if path is not None and path.exists():
            self._saved_meta = torch.load(path, map_location="cpu", weights_only=True)


class MetaCalibrationTrainer(MetaCalibrationMixin, Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with ``meta_dataset=`` and ``meta_calibration=``; see `MetaCalibrationMixin`."""


def calibration_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, NLL, Brier score and ECE, for ``Trainer(compute_metrics=calibration_metrics)``.

    ``refined_loss`` is the NLL after the temperature that is best for the samples: what to choose a checkpoint by
    (``metric_for_best_model="refined_loss"``), if a temperature follows.

    Examples:
        >>> import numpy as np
        >>> said = EvalPrediction(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))
        >>> {name: round(value, 3) for name, value in calibration_metrics(said).items()}
        {'accuracy': 1.0, 'nll': 0.22, 'brier': 0.087, 'ece': 0.194, 'refined_loss': 0.2}
    """
    given = prediction.predictions
    logits = torch.as_tensor(np.asarray(given[0] if isinstance(given, tuple) else given))
    targets = torch.as_tensor(np.asarray(prediction.label_ids)).reshape(-1)
    scores: dict[str, Any] = {"logits": logits, "targets": targets}
    return {
        "accuracy": float((logits.argmax(dim=1) == targets).double().mean()),
        "nll": float(negative_log_likelihood(**scores)),
        "brier": float(brier_score(**scores)),
        "ece": float(expected_calibration_error(**scores)),
        "refined_loss": float(AfterTemperature(CrossEntropyLoss())(logits.double(), targets)),
    }
