"""The summary of a report: scores with intervals, after temperature scaling, compared, and by group."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from metacal.evaluation.comparison import Comparison as PairedComparison
from metacal.evaluation.comparison import Difference
from metacal.evaluation.decisions import TemperatureGain
from metacal.evaluation.evaluation import Evaluation
from metacal.evaluation.groups import Groups
from metacal.evaluation.scores import RESAMPLES, Bound, figures_with_intervals, only_bound
from metacal.functional.binning import confidence_and_correctness

MEASURES = {
    "accuracy": ("Accuracy", "share of correct answers; higher is better, for all others lower is"),
    "nll": ("NLL", "negative log-likelihood of the true class, in nats"),
    "brier": ("Brier score", "squared distance from the truth, 0 to 2"),
    "ece": ("ECE", "confidence against accuracy, 15 bins of equal width"),
    "mce": ("MCE", "the worst of those bins"),
    "adaptive_ece": ("Adaptive ECE", "15 bins of equal size"),
    "classwise_ece": ("Classwise ECE", "each class against the rest, averaged"),
    "debiased_ece_l2": ("Debiased ECE (l2)", "root mean square, bias of small bins taken out"),
    "sweep_ece": ("Sweep ECE", "as many bins as keep accuracy rising with confidence"),
    "smooth_ece": ("Smooth ECE", "a kernel in place of bins"),
}
BINARY_MEASURES = {
    "positive_ece": ("ECE of class 1", "its probability against how often it occurs, 15 bins of equal width"),
    "roc_auc": ("ROC-AUC", "chance that class 1 is ranked above class 0; higher is better"),
    "average_precision": ("Average precision", "precision averaged over recall; higher is better"),
}
NOT_SHARES = ("nll", "brier")
"""All others are shares, which people read in percent."""

FEWEST = 20
"""Samples below which no temperature is fitted for the headline."""

WithEnds = tuple[float | None, float | None, float | None, Bound | None]
"""A value, None if it is infinite, the ends of its 95 % interval, and which bound that is if it is one-sided."""


@dataclass(frozen=True)
class ScoreRow:
    """One measure as given and after temperature; see `WithEnds`."""

    key: str
    label: str
    meaning: str
    value: float | None
    low: float | None
    high: float | None
    bound: Bound | None
    after: float | None
    after_low: float | None
    after_high: float | None
    after_bound: Bound | None

    @property
    def is_share(self) -> bool:
        """Whether it is shown in percent."""
        return self.key not in NOT_SHARES


@dataclass(frozen=True)
class Summary:
    """The headline figures; those after temperature scaling are cross-fitted."""

    samples: int
    total: int | None  # rows that the samples were drawn from at random; None if they are all there are
    num_classes: int
    accuracy: float
    confidence: float  # on average
    sentences: list[str]  # over- or under-confidence and what temperature scaling would do, in words
    warning: str | None  # too few samples to tell, or None
    scores: list[ScoreRow]
    temperature: float | None  # fitted on all samples; None where there are too few


@dataclass(frozen=True)
class ComparedScore:
    """One measure over all models; ``best`` share the best value to four digits."""

    key: str
    label: str
    values: list[float | None]
    lows: list[float | None]
    highs: list[float | None]
    bounds: list[Bound | None]
    best: list[int]
    differences: list[dict[str, object]]  # of each other set from the first, row by row; none where that cannot be

    @property
    def is_share(self) -> bool:
        """Whether it is shown in percent."""
        return self.key not in NOT_SHARES


@dataclass(frozen=True)
class GroupPart:
    """Figures of groups of samples, the worst first; see `metacal.evaluation.groups.Groups`."""

    column: str
    sentences: list[str]  # whether groups differ, and how far off they are together, in words
    names: list[str]
    samples: list[int]
    confidences: list[float]
    scores: list[ComparedScore]


@dataclass(frozen=True)
class Comparison:
    """Several models: one row per measure, and a verdict with its evidence for each model but the first."""

    names: list[str]
    scores: list[ComparedScore]
    verdicts: list[list[str]]
    problem: str | None  # why rows cannot be paired, or None


def prepare_summary(evaluation: Evaluation, num_resamples: int = RESAMPLES) -> Summary:
    """Prepare scores as given and after temperature scaling, and a verdict.

    Args:
        evaluation: of predictions with scores of every class.
        num_resamples: data sets drawn for the interval of a calibration error after temperature scaling.
    """
    predictions, figures = evaluation.class_predictions, evaluation.figures
    gain = evaluation.gain if len(predictions) >= FEWEST else None
    after = None
    if gain is not None:
        scaled = replace(predictions, scores=gain.scaled(predictions.logits), is_logits=True)
        after = figures_with_intervals(scaled, num_resamples=num_resamples)
    measures = MEASURES if predictions.num_classes > 2 else MEASURES | BINARY_MEASURES
    return Summary(
        samples=len(predictions),
        total=predictions.total,
        num_classes=predictions.num_classes,
        accuracy=figures["accuracy"],
        confidence=float(confidence_and_correctness(predictions.inputs)[0].double().mean()),
        sentences=_sentences(evaluation, gain),
        warning=evaluation.warning,
        scores=[
            ScoreRow(key, label, meaning, *_with_ends(figures, key), *_with_ends(after, key))
            for key, (label, meaning) in measures.items()
        ],
        temperature=None if gain is None else gain.temperature,
    )


def prepare_comparison(
    named: Sequence[tuple[str, Summary]], paired: PairedComparison | None = None
) -> Comparison | None:
    """Prepare scores side by side and paired differences from the first; None for fewer than two models."""
    if len(named) < 2:
        return None
    differences = [] if paired is None else paired.differences
    scores = []
    for place, key in enumerate(MEASURES):
        rows = [summary.scores[place] for _, summary in named]
        own = [difference.to_dict() for difference in differences if difference.figure == key]
        scores.append(_compared(key, [(row.value, row.low, row.high, row.bound) for row in rows], own))
    found = {(difference.model, difference.figure): difference for difference in differences}
    models = dict.fromkeys(difference.model for difference in differences)
    verdicts = [compared_verdict([found[model, key] for key in ("ece", "nll", "accuracy")]) for model in models]
    return Comparison([name for name, _ in named], scores, verdicts, None if paired is None else paired.problem)


def prepare_groups(groups: Groups) -> GroupPart:
    """Prepare the figures of groups side by side, and a joint verdict."""
    value, low, high, bound = _with_ends(groups.figures, "multicalibration_error")
    interval = f"at most {_percent(high)}" if bound == "upper" else f"{_percent(low)} to {_percent(high)}"
    each, keys = groups.groups, ("accuracy", "ece", "nll")
    return GroupPart(
        column=groups.column,
        sentences=[
            groups.verdict,
            f"Within groups, {groups.of} is off by {_percent(value)} on average (multicalibration error, {interval}).",
            *(f"{note[0].upper()}{note[1:]}." for note in groups.notes),
        ],
        names=[group.name for group in each],
        samples=[group.rows for group in each],
        confidences=[group.confidence for group in each],
        scores=[_compared(key, [_with_ends(group.figures, key) for group in each]) for key in keys],
    )


def _compared(key: str, rows: Sequence[WithEnds], differences: Sequence[dict[str, object]] = ()) -> ComparedScore:
    values, lows, highs, bounds = (list(column) for column in zip(*rows, strict=True))
    shown = [math.inf if value is None else round(value, 4) for value in values]
    best = max(shown) if key == "accuracy" else min(shown)
    places = [place for place, value in enumerate(shown) if value == best] if len(set(shown)) > 1 else []
    return ComparedScore(key, MEASURES[key][0], values, lows, highs, bounds, places, list(differences))


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{100.0 * value:.2f}\u00a0%"


def compared_verdict(differences: Sequence[Difference]) -> list[str]:
    """Say which of two models is better calibrated, by the first difference, with all differences.

    Examples:
        >>> compared_verdict([Difference("ece", "B", "A", -0.021, -0.028, -0.014)])
        ['B is better calibrated than A.', 'ECE is lower by 2.10 points (1.40 to 2.80).']
    """
    first = differences[0]
    if first.is_beyond_noise:
        verdict = f"{first.model} is {'worse' if first.is_worse else 'better'} calibrated than {first.baseline}."
    else:
        verdict = f"{first.model} and {first.baseline}: no difference in calibration beyond noise."
    details = [difference.verdict.removeprefix(f"{difference.model}'s ") for difference in differences]
    return [verdict, *(detail[0].upper() + detail[1:] for detail in details)]


def _with_ends(figures: Mapping[str, float] | None, key: str) -> WithEnds:
    value, low, high = ((figures or {}).get(key + end, math.nan) for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return None, None, None, None
    return (value, None, None, None) if math.isnan(low) else (value, low, high, only_bound(value, low, high))


def _sentences(before: Evaluation, gain: TemperatureGain | None) -> list[str]:
    sentences = [before.verdict]
    if before.verdict.startswith("Neither") and before.figures["ece_low"] > 0.0:
        sentences.append("But it is over-confident at some levels of confidence and under-confident at others.")
    if gain is not None:
        temperature = f"{gain.temperature:g} (the end of its range)" if gain.at_bound else f"{gain.temperature:.2f}"
        effect = "would take" if gain.helps else "would not fix it, taking"
        sentences.append(
            f"A temperature of {temperature} {effect} its ECE from {gain.ece_before * 100:.2f} % to "
            f"{gain.ece_after * 100:.2f} %. No answer changes. The figure is cross-fitted: each fifth of the samples "
            "is scaled by the temperature of the rest."
        )
    return sentences
