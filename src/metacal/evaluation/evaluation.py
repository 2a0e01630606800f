"""`Evaluation`: all figures of one file of predictions, from one pass over it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidFileError
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.rejection import ood_figures, risk_coverage
from metacal.evaluation.scores import RESAMPLES, Binned, Bound, by_end, only_bound
from metacal.evaluation.streaming import SAMPLE, Reservoir, StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain
from metacal.functional.binning import BinStatistics, calibration_error, sample_size_warning

STREAMED = ("accuracy", "nll", "brier", "ece", "mce")
ERRORS = ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece", "sweep_ece", "smooth_ece")
MEASURES = ("accuracy", "nll", "brier", *ERRORS)
"""Figures with an interval."""

FIGURES = (
    *(name + end for name in MEASURES for end in ("", "_low", "_high")),
    "brier_calibration",
    "brier_refinement",
    "aurc",
)
OOD_FIGURES = ("ood_auroc_max_prob", "ood_fpr95_max_prob", "ood_auroc_entropy", "ood_fpr95_entropy")
RISKS = (0.01, 0.02, 0.05)
CONFUSED = 10
"""Pairs of classes to list."""

LARGE = 1.96
"""Standard errors beyond which chance does not explain a difference."""


class ClassFigures(NamedTuple):
    """One class."""

    name: str
    samples: int  # whose target it is
    recall: float | None  # None without samples
    precision: float | None  # None if it was never predicted
    mean_prob: float
    frequency: float  # its share of all targets
    ece: float  # of its probability, against the rest


class ConfusedPair(NamedTuple):
    """Samples of class ``target`` that were taken for ``predicted``: how many, and which share of the class."""

    target: str
    predicted: str
    samples: int
    share: float


@dataclass(frozen=True)
class Evaluation:
    """What was found about one file.

    Attributes:
        name: of the file, without its extension.
        path: of the file.
        rows: in the file.
        sample_rows: rows that figures other than `STREAMED` are of; all of them where they are as many.
        num_classes: K.
        figures: by name, fractions; ``x_low`` and ``x_high`` are the ends of the 95 % interval of x.
        coverage_at_risk: share of samples that can be answered with at most this share wrong, by risk.
        classes: one by one.
        confused: pairs of classes, the most often confused first.
        verdict: over- or under-confidence in one sentence.
        gain: what temperature scaling would bring.
        warning: one sentence if there are too few samples to tell.
    """

    name: str
    path: str
    rows: int
    sample_rows: int
    num_classes: int
    figures: dict[str, float]
    coverage_at_risk: dict[float, float]
    classes: list[ClassFigures]
    confused: list[ConfusedPair]
    verdict: str
    gain: TemperatureGain | None
    warning: str | None

    @property
    def is_sampled(self) -> bool:
        """Whether some figures are of a sample of the rows."""
        return self.sample_rows < self.rows

    @property
    def one_sided(self) -> dict[str, Bound]:
        """Figures whose interval is one-sided, and the bound it gives: an upper one where chance explains an error."""
        ends = {name: [self.figures[name + end] for end in ("", "_low", "_high")] for name in MEASURES}
        bounds = {name: only_bound(*values) for name, values in ends.items()}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def as_dict(self) -> dict[str, object]:
        """For JSON: figures at the top level, what is not a finite number as null."""
        return {
            "file": self.path,
            "rows": self.rows,
            "sample_rows": self.sample_rows,
            "sampled": [name for name in self.figures if self.is_sampled and not _is_streamed(name)],
            "num_classes": self.num_classes,
            **_finite(self.figures),
            "one_sided": self.one_sided,
            "coverage_at_risk": {f"{risk:g}": coverage for risk, coverage in self.coverage_at_risk.items()},
            "classes": [figures._asdict() for figures in self.classes],
            "confused_pairs": [pair._asdict() for pair in self.confused],
            "verdict": self.verdict,
            "temperature_scaling": None if self.gain is None else _finite(self.gain.as_dict()),
            "warning": self.warning,
        }


def evaluate_file(
    file: PredictionFile,
    *,
    ood: PredictionFile | None = None,
    num_bins: int = 15,
    sample: int = SAMPLE,
    num_resamples: int = RESAMPLES,
    seed: int = 0,
    on_rows: Callable[[int], None] | None = None,
) -> Evaluation:
    """Read a file once, whatever its size, and evaluate it.

    Accuracy, NLL, Brier score, ECE and MCE are of all rows. What needs the rows themselves (sorting, resampling,
    fitting) is of a random sample of them, which holds all rows of a file with no more than ``sample``.

    Args:
        file: with targets.
        ood: a file of samples from outside the distribution; adds AUROC and FPR95.
        num_bins: M.
        sample: rows to keep.
        num_resamples: data sets drawn for the interval of a calibration error.
        seed: of the sample and of these draws.
        on_rows: called with the number of rows read so far.

    Raises:
        InvalidFileError: something is wrong in the file; the message says where.
    """
    if ood is not None and ood.num_classes != file.num_classes:
        raise InvalidFileError(
            f"{ood.place}: must have {file.num_classes} classes, as {file.place} has, got {ood.num_classes}; name "
            "predictions of the same model."
        )
    streamed = None  # until there are more rows than are kept
    reservoir = Reservoir.for_classes(file.num_classes, sample, seed)
    with one_thread():
        for batch in file.batches():
            assert batch.targets is not None
            if streamed is None and reservoir.seen + len(batch.targets) > reservoir.capacity:
                streamed = StreamedScores(file.is_logits, num_bins)
                if reservoir.seen:
                    streamed.update(*reservoir.rows())
            if streamed is not None:
                streamed.update(batch.scores, batch.targets)
            reservoir.add(batch.scores, batch.targets)
            if on_rows is not None:
                on_rows(reservoir.seen)
    kept = file.as_predictions(*reservoir.rows())
    evaluation = evaluate_predictions(kept, num_bins=num_bins, num_resamples=num_resamples, seed=seed)
    evaluation = replace(evaluation, path=file.place)
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
        detected = ood_figures(kept.probs, _ood_probs(ood, sample, seed))
        evaluation = replace(evaluation, figures=evaluation.figures | detected)
    return evaluation


def evaluate_predictions(
    predictions: Predictions, *, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> Evaluation:
    """Evaluate predictions that are in memory; arguments as in `evaluate_file`.

    Examples:
        >>> from metacal.evaluation import Predictions, example_predictions
        >>> evaluation = evaluate_predictions(Predictions.from_probs(*example_predictions()), num_resamples=10)
        >>> evaluation.verdict
        'Over-confident: it says 96.5 % and is right 91.1 % of the time.'
        >>> round(evaluation.gain.ece_before, 4), round(evaluation.gain.ece_after, 3)
        (0.0537, 0.006)
    """
    targets, names = predictions.targets, predictions.class_names
    # From the logits themselves where there are any: probabilities may have been rounded to 0, or to a tie.
    binned = Binned.of(replace(predictions.inputs, validate=True), num_bins)
    figures = binned.with_intervals(num_resamples, seed)
    curve = risk_coverage(binned.confidences, binned.correct)
    gain = temperature_gain(logits=predictions.logits, targets=targets, num_bins=num_bins, seed=seed)
    if gain is not None and math.isinf(figures["nll"]):  # logits of a probability of 0 stop at the least float
        gain = replace(gain, nll_before=math.inf)
    counts = confusion_counts(predictions.predicted, targets, predictions.num_classes)
    return Evaluation(
        name=predictions.name,
        path=predictions.name,
        rows=len(targets),
        sample_rows=len(targets),
        num_classes=predictions.num_classes,
        figures=figures | {"aurc": curve.area},
        coverage_at_risk={risk: curve.coverage_at_risk(risk) for risk in RISKS},
        classes=class_figures(counts, predictions.probs.double().mean(dim=0), binned.classes, names),
        confused=confused_pairs(counts, names),
        verdict=confidence_verdict(binned.equal_width),
        gain=gain,
        warning=sample_size_warning(binned.equal_width),
    )


def confusion_counts(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """int64 ``(K, K)``: row is the target, column the prediction.

    Examples:
        >>> import torch
        >>> confusion_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    return torch.bincount(targets * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def class_figures(
    counts: Tensor, mean_probs: Tensor, statistics: BinStatistics, class_names: tuple[str, ...]
) -> list[ClassFigures]:
    """Figures of every class from `confusion_counts`, mean probabilities ``(K,)`` and bins ``(K, M)``."""
    total = max(int(counts.sum()), 1)
    of_class, named, right = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    errors, probs = calibration_error(statistics).tolist(), mean_probs.tolist()
    return [
        ClassFigures(
            name,
            of_class[k],
            right[k] / of_class[k] if of_class[k] else None,
            right[k] / named[k] if named[k] else None,
            probs[k],
            of_class[k] / total,
            errors[k],
        )
        for k, name in enumerate(class_names)
    ]


def confused_pairs(counts: Tensor, class_names: tuple[str, ...], most: int = CONFUSED) -> list[ConfusedPair]:
    """The pairs that are confused most often, most often first.

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


def confidence_verdict(statistics: BinStatistics) -> str:
    """One sentence: over-confident, under-confident, or neither, if chance explains confidence minus accuracy.

    Examples:
        >>> import torch
        >>> from metacal.functional import equal_width_statistics
        >>> confidence_verdict(equal_width_statistics(torch.full((1000,), 0.9), torch.arange(1000) < 800))
        'Over-confident: it says 90.0 % and is right 80.0 % of the time.'
    """
    count = int(statistics.total)
    accuracy = int(statistics.correct_sums.sum()) / count
    confidence = float(statistics.confidence_sums.sum()) / count
    says = f"it says {confidence:.1%} and is right {accuracy:.1%} of the time".replace("%", " %")
    if abs(confidence - accuracy) <= LARGE * math.sqrt(max(confidence * (1.0 - confidence), 0.0) / count):
        return f"Neither over- nor under-confident on average: {says}, which chance explains."
    return f"{'Over' if confidence > accuracy else 'Under'}-confident: {says}."


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in this thread alone: chunks are small, and another thread is busy reading."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _ood_probs(ood: PredictionFile, sample: int, seed: int) -> Tensor:
    reservoir = Reservoir.for_classes(ood.num_classes, sample, seed)
    with one_thread():
        for batch in ood.batches():
            reservoir.add(batch.scores, torch.zeros(len(batch.scores), dtype=torch.int64))
    return ood.as_predictions(*reservoir.rows()).probs


def _is_streamed(name: str) -> bool:
    return name.removesuffix("_low").removesuffix("_high") in STREAMED


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
