"""`Evaluation`: everything that one file of predictions tells, from one pass over it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metacal.errors import InvalidFileError
from metacal.evaluation.batches import PredictionFile
from metacal.evaluation.confusion import ClassFigures, ConfusedPair, class_figures, confused_pairs, confusion_counts
from metacal.evaluation.intervals import RESAMPLES, Bound, Ends, figure_intervals, only_bound
from metacal.evaluation.ood import ood_figures
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.reservoir import SAMPLE, Reservoir
from metacal.evaluation.scores import score_predictions
from metacal.evaluation.selective import risk_coverage
from metacal.evaluation.streaming import StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain
from metacal.evaluation.verdict import confidence_verdict
from metacal.functional.binning import equal_width_statistics
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.sample_size import sample_size_warning

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
        classes: class by class.
        confused: the pairs of classes that are confused most often.
        verdict: over- or under-confidence in one sentence.
        gain: what temperature scaling would bring, by cross-fitting.
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
            **{name: value if math.isfinite(value) else None for name, value in self.figures.items()},
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
    streamed = StreamedScores(file.is_logits, num_bins)
    reservoir = Reservoir.for_classes(file.num_classes, sample, seed)
    with one_thread():
        for batch in file.batches():
            assert batch.targets is not None
            streamed.update(batch.scores, batch.targets)
            reservoir.add(batch.scores, batch.targets)
            if on_rows is not None:
                on_rows(streamed.count)
    evaluation = evaluate_predictions(
        _as_predictions(file, *reservoir.rows()), num_bins=num_bins, num_resamples=num_resamples, seed=seed
    )
    figures = evaluation.figures
    if not reservoir.is_complete:
        figures = figures | {name: float(getattr(streamed, name)) for name in STREAMED}
        figures = figures | _by_end(streamed.intervals(num_resamples, seed))
    if ood is not None:
        figures = figures | ood_figures(_as_predictions(file, *reservoir.rows()).probs, _ood_probs(ood, sample, seed))
    return replace(
        evaluation,
        path=file.place,
        rows=streamed.count,
        figures=figures,
        verdict=confidence_verdict(streamed.statistics),
        warning=sample_size_warning(streamed.statistics),
    )


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
    targets = predictions.targets
    figures = figures_with_intervals(predictions, num_bins=num_bins, num_resamples=num_resamples, seed=seed)
    confidences, correct = confidence_and_correctness(predictions.inputs)
    curve = risk_coverage(confidences, correct)
    gain = temperature_gain(logits=predictions.logits, targets=targets, num_bins=num_bins, seed=seed)
    if gain is not None and math.isinf(figures["nll"]):  # logits of a probability of 0 stop at the least float
        gain = replace(gain, nll_before=math.inf)
    counts = confusion_counts(predictions.predicted, targets, predictions.num_classes)
    statistics = equal_width_statistics(confidences, correct, num_bins)
    return Evaluation(
        name=predictions.name,
        path=predictions.name,
        rows=len(targets),
        sample_rows=len(targets),
        num_classes=predictions.num_classes,
        figures=figures | {"aurc": curve.area},
        coverage_at_risk={risk: curve.coverage_at_risk(risk) for risk in RISKS},
        classes=class_figures(
            counts,
            predictions.probs.double().mean(dim=0),
            class_statistics(predictions.inputs, num_bins),
            predictions.class_names,
        ),
        confused=confused_pairs(counts, predictions.class_names),
        verdict=confidence_verdict(statistics),
        gain=gain,
        warning=sample_size_warning(statistics),
    )


def figures_with_intervals(
    predictions: Predictions, *, num_bins: int = 15, num_resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, float]:
    """`score_predictions` by name, with the ends of all intervals; arguments as in `evaluate_file`."""
    # From the logits themselves where there are any: probabilities may have been rounded to 0, or to a tie.
    given = {predictions.inputs.name: predictions.scores}
    figures = score_predictions(**given, targets=predictions.targets, num_bins=num_bins, seed=seed).as_dict()
    return figures | _by_end(figure_intervals(predictions, figures["smooth_ece"], num_bins, num_resamples, seed))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in this thread alone: chunks are small, and another thread is busy reading."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _as_predictions(file: PredictionFile, scores: Tensor, targets: Tensor) -> Predictions:
    """Rows that the file has checked already."""
    return Predictions(scores, file.is_logits, targets, file.class_names, file.name)


def _by_end(intervals: dict[str, Ends]) -> dict[str, float]:
    """``x_low`` and ``x_high`` of every x."""
    return {
        f"{name}_{end}": value
        for name, ends in intervals.items()
        for end, value in zip(("low", "high"), ends, strict=True)
    }


def _ood_probs(ood: PredictionFile, sample: int, seed: int) -> Tensor:
    reservoir = Reservoir.for_classes(ood.num_classes, sample, seed)
    with one_thread():
        for batch in ood.batches():
            reservoir.add(batch.scores, torch.zeros(len(batch.scores), dtype=torch.int64))
    return _as_predictions(ood, *reservoir.rows()).probs


def _is_streamed(name: str) -> bool:
    return name.removesuffix("_low").removesuffix("_high") in STREAMED


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
