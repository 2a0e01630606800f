"""`prepare_report`: every number of a report, from predictions and runs, before anything is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from typing import Any

from metacal.errors import InvalidTypeError, InvalidValueError
from metacal.evaluation.comparison import Comparison as PairedComparison
from metacal.evaluation.evaluation import Evaluation, evaluate_predictions
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import RESAMPLES
from metacal.functional.arguments import check_integer
from metacal.reporting.mistakes import Mistakes, RiskCoverageCurve, prepare_mistakes, prepare_risk_coverage
from metacal.reporting.reliability import (
    Classes,
    PositiveClass,
    Reliability,
    prepare_classes,
    prepare_positive,
    prepare_reliability,
)
from metacal.reporting.runs import (
    Agreement,
    Curves,
    Histogram,
    RunView,
    SmoothingMatrix,
    Strengths,
    SuperclassSmoothing,
    prepare_agreement,
    prepare_curves,
    prepare_l2,
    prepare_smoothing,
    prepare_strengths,
    prepare_superclasses,
)
from metacal.reporting.shift import Shift, prepare_shift
from metacal.reporting.summary import (
    Comparison,
    GroupPart,
    Summary,
    prepare_comparison,
    prepare_groups,
    prepare_summary,
)


@dataclass(frozen=True)
class PredictionPart:
    """Everything shown of one set of predictions."""

    summary: Summary
    reliability: Reliability
    classes: Classes
    mistakes: Mistakes
    risk_coverage: RiskCoverageCurve
    positive: PositiveClass | None  # of a binary model
    groups: GroupPart | None  # where a column groups the samples


@dataclass(frozen=True)
class RunPart:
    """Everything shown of one run beside its predictions; what it did not record is None or empty."""

    method: str
    dataset: str
    curves: Curves | None
    agreement: Agreement | None
    strengths: Strengths | None
    smoothing: SmoothingMatrix | None
    superclasses: SuperclassSmoothing | None
    l2: list[Histogram]
    shifts: list[Shift]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.curves or self.strengths or self.smoothing or self.l2 or self.shifts)


@dataclass(frozen=True)
class Subject:
    """One file or run of the report, under a name that no other subject has."""

    name: str
    run: RunPart | None
    predictions: PredictionPart | None


@dataclass(frozen=True)
class Source:
    """A file that was read."""

    file: str  # its path
    sha256: str  # of its bytes
    description: str  # rows, columns, and how it was decided what they hold, in words


@dataclass(frozen=True)
class Origin:
    """How a report came about."""

    date: str  # ISO 8601
    command: str | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report: plain numbers and names, nothing drawn."""

    title: str
    subjects: list[Subject]
    comparison: Comparison | None
    origin: Origin | None = None

    def as_dict(self) -> dict[str, Any]:
        """Every number behind a figure, for JSON."""
        return asdict(self)


def prepare_report(
    subjects: Sequence[Predictions | Evaluation | RunView],
    title: str = "Calibration report",
    num_resamples: int = RESAMPLES,
    progress: Callable[[str], None] | None = None,
    problem: str | None = None,
) -> Report:
    """Work out every number of a report.

    Args:
        subjects: predictions, evaluated or not, and runs, in the order they are shown.
        title: heading of the page.
        num_resamples: data sets drawn for the interval of a calibration error.
        progress: called with the name of each subject before it is worked on.
        problem: why samples of several subjects are not the same, row by row; by default their targets decide.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 30), torch.arange(30) % 2)
        >>> report = prepare_report([said, said], num_resamples=10)
        >>> [subject.name for subject in report.subjects], len(report.comparison.scores)
        (['predictions', 'predictions (2)'], 10)
    """
    check_integer("num_resamples", num_resamples, 1)
    if not subjects:
        raise InvalidValueError("`subjects` must hold at least one set of predictions or run, got none.")
    parts: list[Subject] = []
    evaluations: list[Evaluation] = []
    for subject in subjects:
        if not isinstance(subject, Predictions | Evaluation | RunView):
            raise InvalidTypeError(f"`subjects` must be of type Predictions or RunView, got {type(subject).__name__}.")
        name = unused_name(subject.name, {part.name for part in parts})
        if progress is not None:
            progress(name)
        run = _prepare_run(subject) if isinstance(subject, RunView) else None
        said = subject.predictions if isinstance(subject, RunView) else subject
        part = None
        if said is not None:
            evaluation = (
                said if isinstance(said, Evaluation) else evaluate_predictions(said, num_resamples=num_resamples)
            )
            evaluations.append(replace(evaluation, name=name))
            part = _prepare_predictions(evaluation, num_resamples)
        parts.append(Subject(name, run, part))
    named = [(part.name, part.predictions.summary) for part in parts if part.predictions is not None]
    paired = PairedComparison(evaluations, problem=problem)
    if evaluations and problem is None:
        paired = PairedComparison.of(evaluations, num_resamples)
    return Report(title, parts, prepare_comparison(named, paired))


def _prepare_predictions(evaluation: Evaluation, num_resamples: int) -> PredictionPart:
    predictions = evaluation.class_predictions
    return PredictionPart(
        summary=prepare_summary(evaluation, num_resamples),
        reliability=prepare_reliability(predictions),
        classes=prepare_classes(predictions),
        mistakes=prepare_mistakes(predictions),
        risk_coverage=prepare_risk_coverage(predictions),
        positive=prepare_positive(predictions, evaluation.thresholds) if predictions.num_classes == 2 else None,
        groups=None if evaluation.groups is None else prepare_groups(evaluation.groups),
    )


def _prepare_run(run: RunView) -> RunPart:
    smoothing = superclasses = None
    if run.smoothing is not None:
        smoothing = prepare_smoothing(run.smoothing, run.class_names, run.superclasses)
        if run.superclasses is not None:
            superclasses = prepare_superclasses(run.smoothing, run.class_names, run.superclasses)
    return RunPart(
        method=run.method,
        dataset=run.dataset,
        curves=prepare_curves(run),
        agreement=prepare_agreement(run),
        strengths=prepare_strengths(run),
        smoothing=smoothing,
        superclasses=superclasses,
        l2=prepare_l2(run.l2 or {}),
        shifts=[prepare_shift(study) for study in run.shifts],
    )


def unused_name(name: str, taken: set[str], pattern: str = "{} ({})") -> str:
    """The name, or the first of ``name (2)``, ``name (3)``, ... that is not taken.

    Examples:
        >>> unused_name("run", {"run", "run (2)"})
        'run (3)'
    """
    candidates = chain([name], (pattern.format(name, number) for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
