"""Several models on the same rows, and `evaluate`, the whole evaluation as one call in Python."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from typing_extensions import TypedDict, Unpack

from metacal.errors import InvalidValueError, nearest
from metacal.evaluation.evaluation import ERRORS, MEASURES, Evaluation, evaluate_predictions
from metacal.evaluation.groups import GroupLabels, as_column, label_groups
from metacal.evaluation.paired import Cells, accuracy_difference, error_cells, error_difference, mean_difference
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import RESAMPLES, Binned, finite
from metacal.evaluation.threads import in_threads, one_thread
from metacal.functional.arguments import check_integer, check_num_bins
from metacal.functional.boundary import explained, to_tensor
from metacal.functional.inputs import class_logits, read_inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


LABELS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "ECE",
    "mce": "MCE",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
    "debiased_ece_l2": "debiased ECE (l2)",
    "sweep_ece": "sweep ECE",
    "smooth_ece": "smooth ECE",
}
IN_PERCENT = ("accuracy", *ERRORS)


@dataclass(frozen=True)
class Difference:
    """The difference of one figure from the baseline, with its 95 % interval; NaN if it is undefined.

    Of a calibration error, what chance adds to each model's is taken out first (see `error_difference`).
    """

    figure: str
    model: str
    baseline: str
    value: float
    low: float
    high: float

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def is_worse(self) -> bool:
        """Whether the model is worse than the baseline, beyond noise."""
        return self.high < 0.0 if self.figure == "accuracy" else self.low > 0.0

    @property
    def verdict(self) -> str:
        """The difference in words.

        Examples:
            >>> Difference("ece", "B", "A", -0.021, -0.028, -0.014).verdict
            "B's ECE is lower by 2.10 points (1.40 to 2.80)."
            >>> Difference("nll", "B", "A", 0.01, -0.02, 0.04).verdict
            "B's NLL: no difference from A beyond noise (-0.0200 to 0.0400)."
        """
        name = f"{self.model}'s {LABELS[self.figure]}"
        if math.isnan(self.low):
            return f"{name}: the difference from {self.baseline} has no interval."
        is_share = self.figure in IN_PERCENT
        show = (lambda number: f"{100.0 * number:.2f}") if is_share else "{:.4f}".format
        if not self.is_beyond_noise:
            return f"{name}: no difference from {self.baseline} beyond noise ({show(self.low)} to {show(self.high)})."
        least, most = sorted((abs(self.low), abs(self.high)))
        unit = " points" if is_share else ""
        side = "lower" if self.high < 0.0 else "higher"
        return f"{name} is {side} by {show(abs(self.value))}{unit} ({show(least)} to {show(most)})."

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary for JSON; values that are not finite become null."""
        ends = {name: finite(getattr(self, name)) for name in ("value", "low", "high")}
        return {**asdict(self), **ends, "is_beyond_noise": self.is_beyond_noise, "verdict": self.verdict}


@dataclass(frozen=True)
class Comparison:
    """Several models, evaluated on the same rows.

    Attributes:
        evaluations: one a model, in the order given.
        differences: every figure of each other model minus that of the first.
        problem: why there are none; None if there are.
    """

    evaluations: list[Evaluation]
    differences: list[Difference] = field(default_factory=list)
    problem: str | None = None

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation], num_resamples: int = RESAMPLES, seed: int = 0) -> "Comparison":
        """Compare each model with the first by paired rows, if they have the same rows."""
        first, *others = evaluations
        problem = next((said for other in others if (said := _unpaired(first, other)) is not None), None)
        if problem is not None or not others:
            return cls(list(evaluations), [], problem)
        cells, *rest = in_threads(_cells, evaluations)
        found = []
        for other, others_cells in zip(others, rest, strict=True):
            found += _differences(first, other, cells, others_cells, num_resamples, seed)
        return cls(list(evaluations), found)

    def __getitem__(self, name: str) -> Evaluation:
        """Return the evaluation of the model with this name."""
        found = {evaluation.name: evaluation for evaluation in self.evaluations}
        if name not in found:
            raise InvalidValueError(f"`name` must be that of a model, got {name!r}; there is {nearest(name, found)}.")
        return found[name]

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary for JSON."""
        return {
            "files": [evaluation.to_dict() for evaluation in self.evaluations],
            "differences": [difference.to_dict() for difference in self.differences],
        }

    def frame(self) -> "DataFrame":
        """Stack `Evaluation.frame` of all models: the index is (model, figure)."""
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


def _cells(evaluation: Evaluation) -> dict[str, Cells]:
    assert isinstance(evaluation.binned, Binned)
    return error_cells(evaluation.binned, evaluation.figures["smooth_ece"])


def _differences(
    first: Evaluation,
    other: Evaluation,
    cells: dict[str, Cells],
    others_cells: dict[str, Cells],
    num_resamples: int,
    seed: int,
) -> list[Difference]:
    """Return the paired differences of every figure of a model from the first."""
    assert isinstance(first.binned, Binned) and isinstance(other.binned, Binned)
    one, two = first.binned, other.binned
    found: dict[str, tuple[float, float, float]] = {}
    value = two.correct.double().mean() - one.correct.double().mean()
    found["accuracy"] = (value.item(), *accuracy_difference(one.correct, two.correct))
    for name, before, after in zip(("nll", "brier"), one.losses_and_distances, two.losses_and_distances, strict=True):
        found[name] = ((after.mean() - before.mean()).item(), *mean_difference(before, after))
    pairs = in_threads(lambda name: error_difference(cells[name], others_cells[name], num_resamples, seed), cells)
    found |= zip(cells, pairs, strict=True)
    return [Difference(name, other.name, first.name, *found[name]) for name in MEASURES]


def _unpaired(first: Evaluation, other: Evaluation) -> str | None:
    """Say why two evaluations cannot be paired; None if they can, as far as their targets show."""
    one, two = first.predictions, other.predictions
    if one is None or two is None:
        return f"{(first if one is None else other).name} has no scores of every class: not compared row by row."
    if first.rows != other.rows or len(one) != len(two):
        return f"{first.name} has {first.rows:,} rows, {other.name} {other.rows:,}: not compared row by row."
    if one.class_names != two.class_names:
        return f"{first.name} and {other.name} have different classes, or another order: not compared row by row."
    if not torch.equal(one.targets, two.targets):
        return f"{first.name} and {other.name} have different targets: not the same rows, so not compared row by row."
    return None


class EvaluateOptions(TypedDict, total=False):
    """The arguments of `evaluate` that do not affect its return type."""

    class_names: Sequence[str] | None
    by: Any
    multilabel: bool
    num_bins: int
    num_resamples: int
    seed: int


@overload
def evaluate(*, logits: Mapping[str, Any], targets: Any, **options: Unpack[EvaluateOptions]) -> Comparison: ...
@overload
def evaluate(*, probs: Mapping[str, Any], targets: Any, **options: Unpack[EvaluateOptions]) -> Comparison: ...
@overload
def evaluate(
    *, logits: Any = None, probs: Any = None, targets: Any, **options: Unpack[EvaluateOptions]
) -> Evaluation: ...
@explained
def evaluate(
    *,
    logits: Any = None,
    probs: Any = None,
    targets: Any,
    class_names: Sequence[str] | None = None,
    by: Any = None,
    multilabel: bool = False,
    num_bins: int = 15,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation | Comparison:
    """Measure how well calibrated predictions are, how certain that is, and what would fix it.

    Args:
        logits: ``(n, K)``, or ``(n,)`` of a binary model: tensors, arrays, DataFrames or lists. A dictionary of name to
            scores compares several models.
        probs: the same for probabilities; ``(n,)`` is that of class 1.
        targets: ``(n,)``: class numbers from 0, or class names.
        class_names: K names; by default the columns of a DataFrame, or numbers.
        by: ``(n,)``: the group of each row; adds every figure for each group.
        multilabel: whether scores and targets ``(n, L)`` are L yes/no labels; each label is then a group.
        num_bins: number of bins of the calibration errors.
        num_resamples: number of simulated data sets for the interval of a calibration error.
        seed: seed of the simulation.

    Returns:
        An `Evaluation`, or a `Comparison` for a dictionary; both have ``to_dict()``, ``frame()``, ``plot()`` and
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
    if multilabel and by is not None:
        raise InvalidValueError("`by` cannot go with `multilabel`, which groups by label.")
    labels = None if by is None else label_groups(str(getattr(by, "name", None) or "by"), as_column(by))

    def read(each: Any, name: str) -> Predictions:
        if multilabel:
            return _events(each, targets, class_names, name, is_logits)
        said = _predictions(each, targets, class_names, name, is_logits)
        if labels is not None and len(labels.codes) != len(said):
            raise InvalidValueError(f"`by` must hold {len(said)} values, one a row, got {len(labels.codes)}.")
        return replace(said, groups=labels)

    if not isinstance(scores, Mapping):
        return evaluate_predictions(read(scores, "predictions"), **keywords)
    if not scores:
        raise InvalidValueError(f"`{'logits' if is_logits else 'probs'}` must hold at least one model, got none.")
    with one_thread():
        models = [read(each, str(name)) for name, each in scores.items()]
    evaluations = in_threads(lambda model: evaluate_predictions(model, **keywords), models)
    return Comparison.of(evaluations, num_resamples, seed)


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


def _events(scores: Any, targets: Any, names: Sequence[str] | None, name: str, is_logits: bool) -> Predictions:
    """Return labels ``(n, L)`` as n L yes/no predictions, grouped by label."""
    tensor, outcomes = to_tensor("logits" if is_logits else "probs", scores), to_tensor("targets", targets)
    logits, probs = (tensor, None) if is_logits else (None, tensor)
    inputs = read_inputs(logits=logits, probs=probs, targets=outcomes, multilabel=True)
    if tensor.ndim != 2 or (names is not None and len(names) != inputs.num_classes):
        found = f"{tuple(tensor.shape)} and {None if names is None else len(names)} names"
        raise InvalidValueError(f"`multilabel` needs scores (n, L), and L names if any, got {found}.")
    shown = tuple(map(str, range(inputs.num_classes))) if names is None else tuple(names)
    make = Predictions.from_logits if is_logits else Predictions.from_probs
    flat = tensor.reshape(-1)
    said = make(class_logits(flat) if is_logits else flat, outcomes.reshape(-1), ("no", "yes"), name)
    codes = torch.arange(inputs.num_classes, device=flat.device).repeat(len(tensor))
    return replace(said, groups=GroupLabels("label", codes, shown))


def _numbers(targets: Any, class_names: Sequence[str] | None) -> Any:
    """Map class names to numbers; other objects stay as they are."""
    if not all(isinstance(target, str) for target in targets.flat):
        return targets
    if class_names is None:
        raise InvalidValueError("`class_names` must say which class is which column for `targets` of names, got None.")
    places = {name: number for number, name in enumerate(class_names)}
    strange = next((target for target in targets.flat if target not in places), None)
    if strange is not None:
        raise InvalidValueError(f"`targets` must hold names of `class_names`, got {str(strange)!r}.")
    return np.array([places[target] for target in targets.flat], dtype=np.int64).reshape(targets.shape)
