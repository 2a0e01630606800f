"""`prepare_report`: computes every number of a report from predictions and runs."""

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
from metacal.reporting import runs
from metacal.reporting.mistakes import Mistakes, RiskCoverageCurve, prepare_mistakes, prepare_risk_coverage
from metacal.reporting.reliability import (
    Classes,
    PositiveClass,
    Reliability,
    prepare_classes,
    prepare_positive,
    prepare_reliability,
)
from metacal.reporting.runs import RunView
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
    """Everything shown of one run besides its predictions; unrecorded parts are None or empty."""

    method: str
    dataset: str
    curves: runs.Curves | None
    strengths: runs.Strengths | None
    smoothing: runs.SmoothingMatrix | None
    superclasses: runs.SuperclassSmoothing | None
    l2: list[runs.Histogram]
    shifts: list[Shift]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.curves or self.strengths or self.smoothing or self.l2 or self.shifts)


@dataclass(frozen=True)
class Subject:
    """One file or run of the report, with a unique name."""

    name: str
    run: RunPart | None
    predictions: PredictionPart | None


@dataclass(frozen=True)
class Source:
    """A file that was read, and a description of what was read."""

    file: str
    sha256: str
    description: str


@dataclass(frozen=True)
class Origin:
    """The origin of a report; the date is in ISO 8601."""

    date: str
    command: str | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report: plain numbers and names."""

    title: str
    subjects: list[Subject]
    comparison: Comparison | None
    origin: Origin | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return every plotted number, for JSON."""
        return asdict(self)


def prepare_report(
    subjects: Sequence[Predictions | Evaluation | RunView],
    title: str = "Calibration report",
    num_resamples: int = RESAMPLES,
    progress: Callable[[str], None] | None = None,
    problem: str | None = None,
) -> Report:
    """Compute every number of a report.

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
            found = said if isinstance(said, Evaluation) else evaluate_predictions(said, num_resamples=num_resamples)
            evaluations.append(replace(found, name=name))
            part = _prepare_predictions(found, num_resamples)
        parts.append(Subject(name, run, part))
    named = [(part.name, part.predictions.summary) for part in parts if part.predictions is not None]
    paired = PairedComparison(evaluations, problem=problem)
    if evaluations and problem is None:
        paired = PairedComparison.of(evaluations, num_resamples)
    return Report(title, parts, prepare_comparison(named, paired))


def _prepare_predictions(evaluation: Evaluation, num_resamples: int) -> PredictionPart:
    said, groups = evaluation.class_predictions, evaluation.groups
    is_binary = said.num_classes == 2
    return PredictionPart(
        summary=prepare_summary(evaluation, num_resamples),
        reliability=prepare_reliability(said),
        classes=prepare_classes(said),
        mistakes=prepare_mistakes(said),
        risk_coverage=prepare_risk_coverage(said),
        positive=prepare_positive(said, evaluation.thresholds) if is_binary else None,
        groups=None if groups is None else prepare_groups(groups),
    )


def _prepare_run(run: RunView) -> RunPart:
    smoothing = superclasses = None
    if run.smoothing is not None:
        smoothing = runs.prepare_smoothing(run.smoothing, run.class_names, run.superclasses)
        if run.superclasses is not None:
            superclasses = runs.prepare_superclasses(run.smoothing, run.class_names, run.superclasses)
    curves, strengths, l2 = runs.prepare_curves(run), runs.prepare_strengths(run), runs.prepare_l2(run.l2 or {})
    shifts = [prepare_shift(study) for study in run.shifts]
    return RunPart(run.method, run.dataset, curves, strengths, smoothing, superclasses, l2, shifts)


def unused_name(name: str, taken: set[str], pattern: str = "{} ({})") -> str:
    """Return the name, or the first unused of ``name (2)``, ``name (3)``, ..."""
    candidates = chain([name], (pattern.format(name, number) for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
