"""`Evaluation`: all figures of one model's predictions, computed in one pass over the file."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metacal.errors import InvalidFileError, InvalidValueError
from metacal.evaluation.decisions import (
    TemperatureGain,
    Threshold,
    ood_figures,
    risk_coverage,
    temperature_gain,
    threshold_table,
)
from metacal.evaluation.groups import GroupLabels, Groups, evaluate_groups, label_groups
from metacal.evaluation.prediction_file import Batch, PredictionFile
from metacal.evaluation.predictions import SAMPLE, Predictions, Reservoir, sample_predictions
from metacal.evaluation.scores import (
    RESAMPLES,
    Binned,
    Bound,
    TopLabel,
    by_end,
    confidence_verdict,
    data_frame,
    finite,
    only_bound,
)
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.tables import join_columns
from metacal.evaluation.threads import one_thread
from metacal.functional.binning import calibration_error, sample_size_warning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def _with_ends(*names: str) -> tuple[str, ...]:
    return tuple(name + end for name in names for end in ("", "_low", "_high"))


STREAMED = ("accuracy", "nll", "brier", "ece", "mce")
ERRORS = ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece_l2", "sweep_ece", "smooth_ece")
MEASURES = ("accuracy", "nll", "brier", *ERRORS)
"""Figures with an interval."""

FIGURES = (*_with_ends(*MEASURES), "brier_calibration", "brier_refinement", "aurc")
TOP_LABEL_FIGURES = tuple(name for name in FIGURES if not name.startswith(("nll", "brier", "classwise")))
"""Those of confidences in the predicted class alone."""

BINARY_FIGURES = (*_with_ends("positive_ece", "roc_auc"), "average_precision")
GROUP_ERRORS = ("multicalibration_error", "worst_group_ece")
GROUP_FIGURES = (*_with_ends(*GROUP_ERRORS), "groups_p_value")
OOD_FIGURES = ("ood_auroc_max_prob", "ood_fpr95_max_prob", "ood_auroc_entropy", "ood_fpr95_entropy")
RISKS = (0.01, 0.02, 0.05)


class ClassFigures(NamedTuple):
    """The figures of one class."""

    name: str
    samples: int  # whose target it is
    recall: float | None  # None without samples
    precision: float | None  # None if it was never predicted
    mean_prob: float
    frequency: float  # its share of all targets
    ece: float  # of its probability, against the rest


class ConfusedPair(NamedTuple):
    """How many samples of class ``target`` were predicted as ``predicted``, and their share of the class."""

    target: str
    predicted: str
    samples: int
    share: float


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one model's predictions.

    Attributes:
        name: of the model, or of the file without its extension.
        path: of the file; the name again where there is none.
        rows: samples; of a file all its rows.
        sample_rows: rows that figures other than `STREAMED` are of; all of them where they are as many.
        num_classes: K; 0 if only the confidence in the predicted class is known, and then `TOP_LABEL_FIGURES` are all.
        figures: by name, fractions; ``x_low`` and ``x_high`` are the ends of the 95 % interval of x.
        coverage_at_risk: share of samples that can be answered with at most this share wrong, by risk.
        classes: one by one.
        confused: pairs of classes, the most often confused first.
        verdict: over- or under-confidence in one sentence.
        gain: what temperature scaling would bring.
        warning: one sentence if there are too few samples to tell.
        predictions: the rows themselves, of a large file the sample of them; None of top-label confidences.
        binned: the rows in bins.
        read: columns, kind and number of what was read from the file, see `PredictionFile.describe`.
        groups: every figure group by group, where a column or array groups the rows; else None. `GROUP_FIGURES` are
            among the figures then.
        thresholds: of a binary model, what each threshold on the probability of class 1 gives; else none.
            `BINARY_FIGURES` are among the figures then.
    """

    name: str
    path: str
    rows: int
    sample_rows: int
    figures: dict[str, float]
    coverage_at_risk: dict[float, float]
    verdict: str
    warning: str | None
    binned: TopLabel = field(repr=False, compare=False)
    predictions: Predictions | None = field(default=None, repr=False, compare=False)
    num_classes: int = 0
    classes: list[ClassFigures] = field(default_factory=list)
    confused: list[ConfusedPair] = field(default_factory=list)
    gain: TemperatureGain | None = None
    read: dict[str, Any] | None = None
    groups: Groups | None = None
    thresholds: list[Threshold] = field(default_factory=list)

    @property
    def class_predictions(self) -> Predictions:
        """The predictions, if they have a score for each class; otherwise an error."""
        if self.predictions is None:
            raise InvalidValueError(f"{self.path}: has confidences in the predicted class alone, not of every class.")
        return self.predictions

    @property
    def is_sampled(self) -> bool:
        """Whether some figures use a sample of the rows."""
        return self.sample_rows < self.rows

    @property
    def one_sided(self) -> dict[str, Bound]:
        """The figures with a one-sided interval, and the bound it gives: an upper one if chance explains an error."""
        names = [name for name in (*MEASURES, "positive_ece", *GROUP_ERRORS) if name in self.figures]
        bounds = {name: only_bound(*(self.figures[each] for each in _with_ends(name))) for name in names}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def __str__(self) -> str:
        """Accuracy, ECE with its interval, NLL and the verdict, in three lines; `frame` has all figures."""
        accuracy, ece, low, high = (100.0 * self.figures[name] for name in ("accuracy", "ece", "ece_low", "ece_high"))
        shown = f"accuracy {accuracy:.1f} %, ECE {ece:.2f} % ({low:.2f} to {high:.2f})"
        nll = f", NLL {self.figures['nll']:.4f}" if "nll" in self.figures else ""
        return f"{self.name}: {self.rows:,} samples, {self.num_classes} classes\n{shown}{nll}\n{self.verdict}"

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary for JSON: figures at the top level; values that are not finite become null."""
        return {
            "file": self.path,
            "read": self.read,
            "rows": self.rows,
            "sample_rows": self.sample_rows,
            "sampled": [name for name in self.figures if self.is_sampled and not _is_streamed(name)],
            "num_classes": self.num_classes or None,
            **{name: finite(value) for name, value in self.figures.items()},
            "one_sided": self.one_sided,
            "coverage_at_risk": {f"{risk:g}": coverage for risk, coverage in self.coverage_at_risk.items()},
            "classes": [figures._asdict() for figures in self.classes],
            "thresholds": [threshold._asdict() for threshold in self.thresholds],
            "groups": None if self.groups is None else self.groups.to_dict(),
            "confused_pairs": [pair._asdict() for pair in self.confused],
            "verdict": self.verdict,
            "temperature_scaling": None if self.gain is None else self.gain.as_dict(),
            "warning": self.warning,
        }

    def frame(self) -> "DataFrame":
        """Return the figures as a pandas DataFrame with value and interval (NaN if there is none).

        Raises:
            MissingExtraError: pandas is not installed.
        """
        names = [name for name in self.figures if name.removesuffix("_low").removesuffix("_high") == name]
        rows = [[self.figures.get(each, math.nan) for each in _with_ends(name)] for name in names]
        return data_frame(rows, names, ["value", "low", "high"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the reliability diagram; see `metacal.reporting.reliability_diagram`."""
        from metacal.reporting import reliability_diagram

        said = self.class_predictions
        logits, probs = (said.scores, None) if said.is_logits else (None, said.scores)
        shown: dict[str, Any] = {"num_bins": self.binned.equal_width.num_bins, "ax": ax, "title": self.name}
        return reliability_diagram(logits=logits, probs=probs, targets=said.targets, **shown)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page, as ``metacal report`` does."""
        from metacal.reporting import write_report

        return write_report([self.class_predictions], path)


def evaluate_file(
    file: PredictionFile,
    *,
    ood: PredictionFile | None = None,
    num_bins: int = 15,
    sample: int = SAMPLE,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
    places: NDArray[np.int64] | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Evaluation:
    """Read a file of any size once, and evaluate it.

    Accuracy, NLL, Brier score, ECE and MCE are of all rows. What needs the rows themselves (sorting, resampling,
    fitting) is of a random sample of them, which holds all rows of a file with no more than ``sample``.

    Args:
        file: with targets.
        ood: a file of samples from outside the distribution; adds AUROC and FPR95.
        num_bins: M.
        sample: rows to keep.
        num_resamples: data sets drawn for the interval of a calibration error.
        seed: of the sample and of these draws.
        places: where each row stands in another file, see `sample_predictions`.
        on_rows: called with the number of rows read so far.

    Raises:
        InvalidFileError: something is wrong in the file; the message says where.
    """
    if ood is not None and ood.num_classes != file.num_classes:
        rule = f"must have {file.num_classes} classes, as {file.place} has, got {ood.num_classes}"
        raise InvalidFileError(f"{ood.place}: {rule}; name predictions of the same model.")
    if file.is_top_label:
        if ood is not None:
            rule = "`--ood` needs a score for each class, not top-label confidences alone"
            raise InvalidFileError(f"{file.place}: {rule}.")
        return _evaluate_top_label(file, num_bins, num_resamples, seed)
    streamed: StreamedScores | None = None  # until there are more rows than are kept

    def stream(batch: Batch, kept: Reservoir) -> None:
        nonlocal streamed
        assert batch.targets is not None
        if streamed is None and kept.seen + len(batch.targets) > kept.capacity:
            streamed = StreamedScores(file.is_logits, num_bins)
            if kept.seen:
                streamed.update(*kept.rows())
        if streamed is not None:
            streamed.update(batch.scores, batch.targets)
        if on_rows is not None:
            on_rows(kept.seen + len(batch.targets))

    with one_thread():
        kept = sample_predictions(file, sample, seed, places=places, on_batch=stream)
    evaluation = evaluate_predictions(kept, num_bins=num_bins, num_resamples=num_resamples, seed=seed)
    evaluation = replace(evaluation, path=file.place, read=file.describe())
    if streamed is not None:
        figures = streamed.figures() | by_end(streamed.intervals(num_resamples, seed))
        evaluation = replace(
            evaluation,
            rows=streamed.count,
            figures=evaluation.figures | figures,
            verdict=confidence_verdict(streamed.statistics),
            warning=sample_size_warning(streamed.statistics),
        )
    if ood is not None:
        with one_thread():
            others = sample_predictions(ood, sample, seed)
        evaluation = replace(evaluation, figures=evaluation.figures | ood_figures(kept.probs, others.probs))
    return evaluation


def evaluate_predictions(
    predictions: Predictions, *, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> Evaluation:
    """Evaluate predictions in memory; arguments as in `evaluate_file`.

    Examples:
        >>> from metacal.evaluation import Predictions, example_predictions
        >>> evaluation = evaluate_predictions(Predictions.from_probs(*example_predictions()), num_resamples=10)
        >>> evaluation.verdict
        'Over-confident: it says 96.5 % and is right 91.1 % of the time.'
        >>> round(evaluation.gain.ece_before, 4), round(evaluation.gain.ece_after, 3)
        (0.0537, 0.006)
    """
    # From the logits themselves where there are any: probabilities may have been rounded to 0, or to a tie.
    binned = Binned.of(replace(predictions.inputs, validate=True), num_bins)
    targets, names = predictions.targets, predictions.class_names
    whole = _evaluate_rows(predictions.name, binned, predictions.groups, num_resamples, seed)
    before = whole.figures["nll"], whole.figures["ece"]
    gain = temperature_gain(logits=predictions.logits, targets=targets, num_bins=num_bins, seed=seed, before=before)
    predicted, wrong = targets.clone(), (~binned.correct).nonzero().squeeze(1)
    predicted[wrong] = predictions.scores[wrong].argmax(dim=1)
    counts = confusion_counts(predicted, targets, len(names))
    return replace(
        whole,
        predictions=predictions,
        num_classes=len(names),
        classes=class_figures(counts, binned, names),
        confused=confused_pairs(counts, names),
        gain=gain,
        thresholds=threshold_table(binned.positive, targets == 1) if len(names) == 2 else [],
    )


def _evaluate_top_label(file: PredictionFile, num_bins: int, num_resamples: int, seed: int) -> Evaluation:
    """Compute the figures of top-label confidences; all rows are kept."""
    batches = list(file.batches())
    confidences = torch.cat([batch.scores.squeeze(1) for batch in batches])
    correct = torch.cat([batch.targets.bool() for batch in batches if batch.targets is not None])
    columns = [batch.groups for batch in batches if batch.groups is not None]
    labels = label_groups(file.by, join_columns(columns)) if file.by is not None else None
    binned = TopLabel.of_confidences(confidences, correct, num_bins)
    return replace(
        _evaluate_rows(file.name, binned, labels, num_resamples, seed), path=file.place, read=file.describe()
    )


def _evaluate_rows(
    name: str, binned: TopLabel, labels: GroupLabels | None, num_resamples: int, seed: int
) -> Evaluation:
    """Compute the figures that do not need scores for every class."""
    curve = risk_coverage(binned.confidences, binned.correct)
    groups = None if labels is None else evaluate_groups(labels, binned, num_resamples, seed)
    figures = binned.with_intervals(num_resamples, seed) | {"aurc": curve.area}
    return Evaluation(
        name=name,
        path=name,
        rows=len(binned.correct),
        sample_rows=len(binned.correct),
        figures=figures | ({} if groups is None else groups.figures),
        coverage_at_risk={risk: curve.coverage_at_risk(risk) for risk in RISKS},
        verdict=confidence_verdict(binned.equal_width),
        warning=sample_size_warning(binned.equal_width),
        binned=binned,
        groups=groups,
    )


def confusion_counts(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """int64 ``(K, K)``: rows are targets, columns predictions.

    Examples:
        >>> import torch
        >>> confusion_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    return torch.bincount(targets * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def class_figures(counts: Tensor, binned: Binned, class_names: tuple[str, ...]) -> list[ClassFigures]:
    """Compute figures for every class from `confusion_counts` and bins."""
    total = max(int(counts.sum()), 1)
    sums = (counts.sum(1), counts.sum(0), counts.diagonal(), binned.classes.confidence_sums.sum(1) / total)
    found = []
    errors = calibration_error(binned.classes)
    for name, own, called, right, mean, ece in zip(class_names, *map(Tensor.tolist, (*sums, errors)), strict=True):
        recall, precision = right / own if own else None, right / called if called else None
        found.append(ClassFigures(name, own, recall, precision, mean, own / total, ece))
    return found


def confused_pairs(counts: Tensor, class_names: tuple[str, ...], most: int = 10) -> list[ConfusedPair]:
    """Return the most frequently confused pairs, most frequent first.

    Examples:
        >>> import torch
        >>> confused_pairs(torch.tensor([[8, 2], [1, 9]]), ("cat", "dog"))[0]
        ConfusedPair(target='cat', predicted='dog', samples=2, share=0.2)
    """
    off = counts.clone().fill_diagonal_(0)
    values, places = off.flatten().sort(descending=True, stable=True)
    pairs = []
    for count, place in zip(values[:most].tolist(), places[:most].tolist(), strict=True):
        if count:
            row, column = divmod(place, len(class_names))
            pairs.append(ConfusedPair(class_names[row], class_names[column], count, count / int(counts[row].sum())))
    return pairs


def _is_streamed(name: str) -> bool:
    return name.removesuffix("_low").removesuffix("_high") in STREAMED
