"""The metrics with torchmetrics' names and arguments: only the import line changes.

``from torchmetrics.classification import CalibrationError`` becomes ``from metacal.integrations.torchmetrics import
CalibrationError``. All metrics of `metacal.metrics` are here with ``task=``, ``n_bins=`` and ``update(preds, target)``,
and as functions of ``(preds, target, task)``. Two things differ, on purpose:

* torchmetrics takes a batch for logits if one of its values lies outside [0, 1], and for probabilities if none does.
  Here ``inputs`` says what ``preds`` are, ``"probs"`` unless told. Logits given as probabilities are an error that says
  so, never another number.
* A confidence on the edge of two bins belongs to the lower one here, to the upper one there. Memory does not grow with
  the samples where bins are of equal width, and values are float64.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from metacal import metrics
from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_choice
from metacal.metrics.base import ScoreMetric

TASKS = {"binary": None, "multiclass": "num_classes", "multilabel": "num_labels"}
"""What each task is, and the argument that says how many classes or labels there are."""


class TaskMetric(ScoreMetric):
    """The common base: torchmetrics' arguments in torchmetrics' order.

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        n_bins: M, where there are bins.
        norm: of the gaps, ``"l1"``, ``"l2"`` or ``"max"``, where there are any.
        num_classes: K of a multiclass model.
        ignore_index: targets with this value are left out.
        validate_args: check values at every update.
        num_labels: L of a multilabel model.
        inputs: what ``preds`` are, ``"probs"`` or ``"logits"``.
        kwargs: torchmetrics' own, such as ``dist_sync_on_step``.
    """

    def __init__(
        self,
        task: str = "",
        n_bins: int | None = None,
        norm: str | None = None,
        num_classes: int | None = None,
        ignore_index: int | None = None,
        validate_args: bool = True,
        *,
        num_labels: int | None = None,
        inputs: str = "probs",
        **kwargs: Any,
    ) -> None:
        check_choice("task", task, tuple(TASKS))
        size = TASKS[task]
        count = {"num_classes": num_classes, "num_labels": num_labels}.get(size or "", 1)
        if count is None:
            raise InvalidValueError(f"`{size}` must be given for task={task!r}, got None.")
        known = inspect.signature(super().__init__).parameters
        for here, there, value in (("n_bins", "num_bins", n_bins), ("norm", "norm", norm)):
            if value is not None and there not in known:
                raise InvalidValueError(f"`{here}` must be left out: {type(self).__name__} has none, got {value!r}.")
            kwargs |= {} if value is None else {there: value}
        kwargs[size or "num_labels"] = count
        super().__init__(ignore_index=ignore_index, validate=validate_args, inputs=inputs, **kwargs)
        self.task = task

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: of a binary model ``(N, ...)``, of a multiclass one ``(N, K, ...)`` and targets ``(N, ...)``."""
        if self.task == "binary" and getattr(preds, "shape", None) == getattr(target, "shape", ()):
            preds, target = preds.reshape(-1), target.reshape(-1)
        super().update(preds, target)  # type: ignore[safe-super]  # that of the metric beside it


class CalibrationError(TaskMetric, metrics.ExpectedCalibrationError):
    """`metacal.metrics.ExpectedCalibrationError`, replacing ``torchmetrics.classification.CalibrationError``.

    Examples:
        >>> import torch
        >>> metric = CalibrationError(task="multiclass", num_classes=2, n_bins=5)
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0, 0]))
        >>> round(metric.compute().item(), 4)
        0.4
        >>> round(calibration_error(torch.tensor([0.9, 0.3]), torch.tensor([1, 1]), task="binary").item(), 4)
        0.4
    """


class BinaryCalibrationError(CalibrationError):
    """`CalibrationError` of a binary model: the probability of class 1 against how often it is 1."""

    def __init__(
        self,
        n_bins: int = 15,
        norm: str = "l1",
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__("binary", n_bins, norm, None, ignore_index, validate_args, **kwargs)


class MulticlassCalibrationError(CalibrationError):
    """`CalibrationError` of a multiclass model: the highest probability against how often it is right."""

    def __init__(
        self,
        num_classes: int,
        n_bins: int = 15,
        norm: str = "l1",
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__("multiclass", n_bins, norm, num_classes, ignore_index, validate_args, **kwargs)


class AdaptiveCalibrationError(TaskMetric, metrics.AdaptiveCalibrationError):
    """`metacal.metrics.AdaptiveCalibrationError` with torchmetrics' arguments."""


class ClasswiseCalibrationError(TaskMetric, metrics.ClasswiseCalibrationError):
    """`metacal.metrics.ClasswiseCalibrationError` with torchmetrics' arguments."""


class DebiasedCalibrationError(TaskMetric, metrics.DebiasedCalibrationError):
    """`metacal.metrics.DebiasedCalibrationError` with torchmetrics' arguments."""


class SweepCalibrationError(TaskMetric, metrics.SweepCalibrationError):
    """`metacal.metrics.SweepCalibrationError` with torchmetrics' arguments."""


class SmoothCalibrationError(TaskMetric, metrics.SmoothCalibrationError):
    """`metacal.metrics.SmoothCalibrationError` with torchmetrics' arguments."""


class BrierScore(TaskMetric, metrics.BrierScore):
    """`metacal.metrics.BrierScore` with torchmetrics' arguments."""


class NegativeLogLikelihood(TaskMetric, metrics.NegativeLogLikelihood):
    """`metacal.metrics.NegativeLogLikelihood` with torchmetrics' arguments."""


def _function(metric: Callable[..., ScoreMetric]) -> Callable[..., Tensor]:
    """Return a metric as a function ``(preds, target, *arguments of the metric)``."""

    def function(preds: Tensor, target: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        made = metric(*arguments, **keywords)
        if isinstance(preds, Tensor):
            made = made.to(preds.device)
        made.update(preds, target)
        value: Tensor = made.compute()
        return value

    function.__doc__ = f"`{metric.__name__}` of one batch: ``(preds, target)``, then the arguments of the class."
    return function


calibration_error = _function(CalibrationError)
binary_calibration_error = _function(BinaryCalibrationError)
multiclass_calibration_error = _function(MulticlassCalibrationError)
adaptive_calibration_error = _function(AdaptiveCalibrationError)
classwise_calibration_error = _function(ClasswiseCalibrationError)
debiased_calibration_error = _function(DebiasedCalibrationError)
sweep_calibration_error = _function(SweepCalibrationError)
smooth_calibration_error = _function(SmoothCalibrationError)
brier_score = _function(BrierScore)
negative_log_likelihood = _function(NegativeLogLikelihood)
