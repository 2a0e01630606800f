"""`Evaluation`: all figures of one model's predictions, of a file from one pass over it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metacal.errors import InvalidFileError, InvalidValueError, MissingExtraError
from metacal.evaluation.classes import ClassFigures, ConfusedPair, class_figures, confused_pairs, confusion_counts
from metacal.evaluation.prediction_file import PredictionFile
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.rejection import ood_figures, risk_coverage
from metacal.evaluation.scores import RESAMPLES, Binned, Bound, TopLabel, by_end, only_bound
from metacal.evaluation.streaming import SAMPLE, Reservoir, StreamedScores
from metacal.evaluation.temperature_gain import TemperatureGain, temperature_gain
from metacal.functional.binning import BinStatistics, sample_size_warning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

STREAMED = ("accuracy", "nll", "brier", "ece", "mce")
ERRORS = ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece_l2", "sweep_ece", "smooth_ece")
MEASURES = ("accuracy", "nll", "brier", *ERRORS)
"""Figures with an interval."""

FIGURES = (
    *(name + end for name in MEASURES for end in ("", "_low", "_high")),
    "brier_calibration",
    "brier_refinement",
    "aurc",
)
TOP_LABEL_FIGURES = tuple(name for name in FIGURES if not name.startswith(("nll", "brier", "classwise")))
"""Those of confidences in the predicted class alone."""

OOD_FIGURES = ("ood_auroc_max_prob", "ood_fpr95_max_prob", "ood_auroc_entropy", "ood_fpr95_entropy")
RISKS = (0.01, 0.02, 0.05)
LARGE = 1.96
"""Standard errors beyond which chance does not explain a difference."""


@dataclass(frozen=True)
class Evaluation:
    """What was found about one model's predictions.

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
    predictions: Predictions | None = field(repr=False, compare=False)
    binned: TopLabel = field(repr=False, compare=False)
    read: dict[str, Any] | None = None

    @property
    def class_predictions(self) -> Predictions:
        """The rows, if they have a score for each class; else an error."""
        if self.predictions is None:
            raise InvalidValueError(f"{self.path}: has confidences in the predicted class alone, not of every class.")
        return self.predictions

    @property
    def is_sampled(self) -> bool:
        """Whether some figures are of a sample of the rows."""
        return self.sample_rows < self.rows

    @property
    def one_sided(self) -> dict[str, Bound]:
        """Figures whose interval is one-sided, and the bound it gives: an upper one where chance explains an error."""
        ends = {
            name: [self.figures[name + end] for end in ("", "_low", "_high")]
            for name in MEASURES
            if name in self.figures
        }
        bounds = {name: only_bound(*values) for name, values in ends.items()}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def __str__(self) -> str:
        """Accuracy, ECE with its interval, NLL and the verdict, in three lines; `frame` has all figures."""
        accuracy, ece, low, high = (100.0 * self.figures[name] for name in ("accuracy", "ece", "ece_low", "ece_high"))
        shown = f"accuracy {accuracy:.1f} %, ECE {ece:.2f} % ({low:.2f} to {high:.2f})"
        nll = f", NLL {self.figures['nll']:.4f}" if "nll" in self.figures else ""
        return f"{self.name}: {self.rows:,} samples, {self.num_classes} classes\n{shown}{nll}\n{self.verdict}"

    def to_dict(self) -> dict[str, object]:
        """For JSON: figures at the top level, what is not a finite number as null."""
        return {
            "file": self.path,
            "read": self.read,
            "rows": self.rows,
            "sample_rows": self.sample_rows,
            "sampled": [name for name in self.figures if self.is_sampled and not _is_streamed(name)],
            "num_classes": self.num_classes or None,
            **_finite(self.figures),
            "one_sided": self.one_sided,
            "coverage_at_risk": {f"{risk:g}": coverage for risk, coverage in self.coverage_at_risk.items()},
            "classes": [figures._asdict() for figures in self.classes],
            "confused_pairs": [pair._asdict() for pair in self.confused],
            "verdict": self.verdict,
            "temperature_scaling": None if self.gain is None else _finite(self.gain.as_dict()),
            "warning": self.warning,
        }

    def frame(self) -> "DataFrame":
        """Figures as a pandas DataFrame: a row each, with its value and the ends of its interval (NaN if none).

        Raises:
            MissingExtraError: pandas is not installed.
        """
        names = [name for name in self.figures if name.removesuffix("_low").removesuffix("_high") == name]
        rows = [[self.figures.get(name + end, math.nan) for end in ("", "_low", "_high")] for name in names]
        return data_frame(rows, names, ["value", "low", "high"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the reliability diagram; see `metacal.reporting.reliability_diagram`."""
        from metacal.reporting import reliability_diagram

        said = self.class_predictions
        logits, probs = (said.scores, None) if said.is_logits else (None, said.scores)
        num_bins = self.binned.equal_width.num_bins
        return reliability_diagram(
            logits=logits, probs=probs, targets=said.targets, num_bins=num_bins, ax=ax, title=self.name
        )

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page; what ``metacal report`` writes."""
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
    if file.is_top_label:
        if ood is not None:
            raise InvalidFileError(
                f"{file.place}: `--ood` needs a score for each class, not top-label confidences alone."
            )
        return _evaluate_top_label(file, num_bins, num_resamples, seed)
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
        predictions=predictions,
        binned=binned,
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


def _evaluate_top_label(file: PredictionFile, num_bins: int, num_resamples: int, seed: int) -> Evaluation:
    """Figures of confidences in the predicted class: two numbers a row, all of which are kept."""
    batches = list(file.batches())
    confidences = torch.cat([batch.scores.squeeze(1) for batch in batches])
    correct = torch.cat([batch.targets.bool() for batch in batches if batch.targets is not None])
    binned = TopLabel.of_confidences(confidences, correct, num_bins)
    curve = risk_coverage(confidences, correct)
    return Evaluation(
        name=file.name,
        path=file.place,
        rows=len(correct),
        sample_rows=len(correct),
        num_classes=0,
        figures=binned.with_intervals(num_resamples, seed) | {"aurc": curve.area},
        coverage_at_risk={risk: curve.coverage_at_risk(risk) for risk in RISKS},
        classes=[],
        confused=[],
        verdict=confidence_verdict(binned.equal_width),
        gain=None,
        warning=sample_size_warning(binned.equal_width),
        predictions=None,
        binned=binned,
        read=file.describe(),
    )


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


def data_frame(rows: list[list[float]], index: list[str], columns: list[str]) -> "DataFrame":
    """A table for pandas users; pandas is not required otherwise."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        raise MissingExtraError("`pandas` must be installed for this: pip install pandas") from None
    return DataFrame(rows, index=index, columns=columns)


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
