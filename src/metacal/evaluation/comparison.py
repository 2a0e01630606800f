"""Several models on the same rows, and `evaluate`, the whole evaluation as one call in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from metacal.errors import InvalidValueError, nearest
from metacal.evaluation.evaluation import Evaluation, evaluate_predictions
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import RESAMPLES
from metacal.functional.arguments import check_integer, check_num_bins
from metacal.functional.boundary import explained, to_tensor
from metacal.functional.inputs import class_logits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Comparison:
    """Several models, evaluated on the same rows.

    Attributes:
        evaluations: one a model, in the order given.
    """

    evaluations: list[Evaluation]

    def __getitem__(self, name: str) -> Evaluation:
        """The evaluation of the model of this name."""
        found = {evaluation.name: evaluation for evaluation in self.evaluations}
        if name not in found:
            raise InvalidValueError(f"`name` must be that of a model, got {name!r}; there is {nearest(name, found)}.")
        return found[name]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"files": [evaluation.to_dict() for evaluation in self.evaluations]}

    def frame(self) -> "DataFrame":
        """`Evaluation.frame` of all models, one below the other: the index is (model, figure)."""
        frames = {evaluation.name: evaluation.frame() for evaluation in self.evaluations}
        from pandas import concat

        return concat(frames, names=["model", "figure"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a reliability curve for each model."""
        from metacal.reporting import reliability_curves

        return reliability_curves([evaluation.class_predictions for evaluation in self.evaluations], ax=ax)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page with the models side by side."""
        from metacal.reporting import write_report

        return write_report([evaluation.class_predictions for evaluation in self.evaluations], path)


@overload
def evaluate(
    *,
    logits: Mapping[str, Any],
    targets: Any,
    class_names: Sequence[str] | None = None,
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison: ...
@overload
def evaluate(
    *,
    probs: Mapping[str, Any],
    targets: Any,
    class_names: Sequence[str] | None = None,
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison: ...
@overload
def evaluate(
    *,
    logits: Any = None,
    probs: Any = None,
    targets: Any,
    class_names: Sequence[str] | None = None,
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation: ...
@explained
def evaluate(
    *,
    logits: Any = None,
    probs: Any = None,
    targets: Any,
    class_names: Sequence[str] | None = None,
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation | Comparison:
    """Say how calibrated predictions are, how certain that is, and what would fix it: ``metacal evaluate`` in Python.

    Args:
        logits: ``(n, K)``, or ``(n,)`` of a binary model: tensors, arrays, DataFrames or lists. A dictionary of name to
            scores compares several models.
        probs: the same for probabilities; ``(n,)`` is that of class 1.
        targets: ``(n,)``: class numbers from 0, or class names.
        class_names: K names; by default the columns of a DataFrame, or numbers.
        num_bins: M of the calibration errors.
        num_resamples: data sets drawn for the interval of a calibration error.
        seed: of these draws.

    Returns:
        An `Evaluation`, or of a dictionary a `Comparison`; both have ``to_dict()``, ``frame()``, ``plot()`` and
        ``report(path)``.

    Examples:
        >>> import metacal
        >>> probs, targets = metacal.evaluation.example_predictions()
        >>> evaluation = metacal.evaluate(probs=probs, targets=targets)
        >>> evaluation.verdict
        'Over-confident: it says 96.5 % and is right 91.1 % of the time.'
        >>> round(evaluation.figures["ece"], 4)
        0.0537
    """
    if (logits is None) == (probs is None):
        given = "neither" if logits is None else "both"
        raise InvalidValueError(f"Exactly one of `logits` and `probs` must be given, got {given}.")
    check_num_bins(num_bins)
    check_integer("num_resamples", num_resamples, 1)
    is_logits, scores = probs is None, logits if probs is None else probs
    keywords: dict[str, Any] = {"num_bins": num_bins, "num_resamples": num_resamples, "seed": seed}
    if not isinstance(scores, Mapping):
        return evaluate_predictions(_predictions(scores, targets, class_names, "predictions", is_logits), **keywords)
    if not scores:
        raise InvalidValueError(f"`{'logits' if is_logits else 'probs'}` must hold at least one model, got none.")
    models = [_predictions(each, targets, class_names, str(name), is_logits) for name, each in scores.items()]
    return Comparison([evaluate_predictions(model, **keywords) for model in models])


def _predictions(
    scores: Any, targets: Any, class_names: Sequence[str] | None, name: str, is_logits: bool
) -> Predictions:
    columns = getattr(scores, "columns", None)  # of a DataFrame
    if class_names is None and columns is not None:
        class_names = [str(column) for column in columns]
    if not isinstance(targets, torch.Tensor) and np.asarray(targets).dtype.kind in "OU":
        targets = _numbers(np.asarray(targets), class_names)
    if is_logits:
        tensor = to_tensor("logits", scores)
        return Predictions.from_logits(class_logits(tensor) if tensor.ndim == 1 else tensor, targets, class_names, name)
    return Predictions.from_probs(scores, targets, class_names, name)


def _numbers(targets: Any, class_names: Sequence[str] | None) -> Any:
    """Class names as numbers; what else is in an array of objects stays as it is."""
    if not all(isinstance(target, str) for target in targets.flat):
        return targets
    if class_names is None:
        raise InvalidValueError("`class_names` must say which class is which column for `targets` of names, got None.")
    places = {name: number for number, name in enumerate(class_names)}
    strange = next((target for target in targets.flat if target not in places), None)
    if strange is not None:
        raise InvalidValueError(f"`targets` must hold names of `class_names`, got {str(strange)!r}.")
    return np.array([places[target] for target in targets.flat], dtype=np.int64).reshape(targets.shape)
