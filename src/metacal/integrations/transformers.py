"""Hugging Face Transformers: a `Trainer` that meta-calibrates sequence and image classifiers."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from metacal.bf16 import check_bf16
from metacal.data import split_off
from metacal.errors import InvalidTypeError, InvalidValueError, needs
from metacal.functional.brier_score import brier_score
from metacal.functional.expected_calibration_error import expected_calibration_error
from metacal.functional.negative_log_likelihood import negative_log_likelihood
from metacal.integrations.head_classes import default_smoothing
from metacal.integrations.head_rate import HeadRate
from metacal.integrations.meta_stream import MetaStream
from metacal.metalearning import MetaCalibrator
from metacal.metalearning.checks import find_head, linear_layers

with needs("transformers"):
    from transformers import EvalPrediction, Trainer

FILE = "meta_calibration.pt"
HEADS = ("classifier", "score", "classification_head", "head", "fc", "logits_proj")
"""Names that the library's models have for their last part, in the order in which they are looked for."""


class MetaCalibrationMixin:
    """What `MetaCalibrationTrainer` adds to `transformers.Trainer`; put it before any subclass of that.

    The trainer's loss, and what it logs, stay what they are; the gradient that flows into the logits is exchanged for
    that of the learned loss (see `metacal.MetaCalibrator.steer`). Omega and the place in the meta set are saved in, and
    resumed from, the trainer's checkpoints.

    Args:
        *args: of the trainer.
        meta_dataset: held-out samples, like ``train_dataset``; or a share of that to split off, such as ``0.1``.
        meta_calibration: settings of `metacal.MetaCalibrator` (``hyperparameters``, ``objective``, ``every``, ...), and
            ``head``, the attribute path of the layer that returns the logits, where it is not found by itself;
            ``batch_size`` of meta batches.
        **kwargs: of the trainer.
    """

    calibrator: MetaCalibrator | None

    def __init__(
        self: Any,
        *args: Any,
        meta_dataset: Any = None,
        meta_calibration: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if meta_dataset is None:
            raise InvalidValueError(
                "`meta_dataset` must be a dataset of held-out samples, or a share such as 0.1 of the training set to "
                "split off, got None."
            )
        super().__init__(*args, **kwargs)
        if self.accelerator.mixed_precision == "bf16" or any(
            p.dtype == torch.bfloat16 for p in self.model.parameters()
        ):
            check_bf16(self.args.device.type, instead="bf16=False and a model in float32")
        if isinstance(meta_dataset, float):
            self.train_dataset, meta_dataset = split_dataset(self.train_dataset, meta_dataset, self.args.seed)
        self.meta_dataset = meta_dataset
        self.meta_calibration = dict(meta_calibration or {})
        self.calibrator = self._meta_stream = self._rate = self._saved_meta = None

    def compute_loss(
        self: Any, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """The trainer's own loss; when training, its gradient becomes that of the learned loss."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        labels = inputs.get("labels")
        if labels is None:
            raise InvalidValueError(f"`inputs` must hold labels, got {', '.join(inputs) or 'nothing'} alone.")
        calibrator: MetaCalibrator = self._calibrator_of(self.accelerator.unwrap_model(model))
        with calibrator.watching():
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)  # type: ignore[misc]
        calibrator.steer(
            loss,
            labels,
            meta=self._meta_batches(),
            lr=self._rate([self.optimizer]),
            boundary=self.accelerator.sync_gradients,
        )
        return (loss, outputs) if return_outputs else loss

    def log(self: Any, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds the meta-loss and the mean strengths to what the trainer logs as it trains."""
        if "loss" in logs and self.calibrator is not None:
            logs = {**logs, **{f"meta_{name}": float(value) for name, value in self.calibrator.latest.items()}}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _calibrator_of(self: Any, model: nn.Module) -> MetaCalibrator:
        """The calibrator of the model in training, made when training begins; resumed, if that is asked for."""
        if self.calibrator is None or self.calibrator.model is not model:
            self._begin(model)
        if self._saved_meta is not None:
            self.calibrator.load_state_dict(self._saved_meta["calibrator"])
            self._meta_stream.go_to(self._saved_meta["drawn"])
            self._saved_meta = None
        return self.calibrator  # type: ignore[no-any-return]

    def _begin(self: Any, model: nn.Module) -> None:
        """Make the calibrator and the stream of meta batches; what is learned starts anew with every model."""
        if self.args.n_gpu > 1:
            raise InvalidValueError(
                f"`model` must run on one GPU per process, got {self.args.n_gpu}; start it with torchrun or accelerate."
            )
        settings = dict(self.meta_calibration)
        batch_size = settings.pop("batch_size", self.args.train_batch_size)
        head = find_head(model, settings.pop("head", None) or find_classifier(model))
        learned = settings.pop("hyperparameters", None)
        learned = default_smoothing(head) if learned is None else copy.deepcopy(learned)
        if self.calibrator is not None:
            self.calibrator.remove()
        self.calibrator = MetaCalibrator(model, head, learned, **{"seed": self.args.seed, **settings})
        self._rate = HeadRate(head)
        self._meta_stream = MetaStream(
            self.meta_dataset,
            batch_size,
            collate_fn=self._get_collator_with_removed_columns(self.data_collator, description="meta"),
            num_workers=self.args.dataloader_num_workers,
            seed=self.args.seed,
            rank=self.args.process_index,
            ranks=self.args.world_size,
        )

    def _meta_batches(self: Any) -> Iterator[tuple[dict[str, Any], Tensor]]:
        for raw in self._meta_stream:
            inputs = dict(self._prepare_inputs(raw))
            if "labels" not in inputs:
                raise InvalidValueError(f"`meta_dataset` must give labels, got {', '.join(inputs)} alone.")
            labels = inputs.pop("labels")
            yield inputs, labels

    def _save_optimizer_and_scheduler(self: Any, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        if self.calibrator is not None and self.args.should_save:
            state = {"calibrator": self.calibrator.state_dict(), "drawn": self._meta_stream.drawn}
            torch.save(state, Path(output_dir) / FILE)

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        path = None if checkpoint is None else Path(checkpoint) / FILE
        if path is not None and path.exists():
            self._saved_meta = torch.load(path, map_location="cpu", weights_only=True)


class MetaCalibrationTrainer(MetaCalibrationMixin, Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with ``meta_dataset=`` and ``meta_calibration=``; see `MetaCalibrationMixin`."""


def find_classifier(model: nn.Module) -> nn.Module:
    """The layer that returns the logits: the part with one of the usual names, or the last linear layer in it."""
    for name in HEADS:
        part = getattr(model, name, None)
        if isinstance(part, nn.Linear):
            return part
        if isinstance(part, nn.Module):
            inside = [module for module in part.modules() if isinstance(module, nn.Linear)]
            if inside:
                return inside[-1]
    raise InvalidValueError(
        f"`meta_calibration` must name the layer that returns the logits, as {{'head': 'path'}}: the model has none of "
        f"{', '.join(HEADS)}; {linear_layers(model)}"
    )


def split_dataset(dataset: Any, share: float, seed: int) -> tuple[Any, Any]:
    """A training dataset without a share of it, and that share."""
    if dataset is None or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InvalidTypeError(
            f"`train_dataset` must have a length for a share to be split off, got {type(dataset).__name__}."
        )
    numbers = np.arange(len(dataset))
    (rest, _), (held_out, _) = split_off((numbers, numbers), share, seed)
    if hasattr(dataset, "select"):  # of the datasets library
        return dataset.select(rest), dataset.select(held_out)
    return Subset(dataset, rest.tolist()), Subset(dataset, held_out.tolist())


def calibration_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, NLL, Brier score and ECE, for ``Trainer(compute_metrics=calibration_metrics)``.

    Examples:
        >>> import numpy as np
        >>> said = EvalPrediction(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))
        >>> {name: round(value, 3) for name, value in calibration_metrics(said).items()}
        {'accuracy': 1.0, 'nll': 0.22, 'brier': 0.087, 'ece': 0.194}
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
    }
