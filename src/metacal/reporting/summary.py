"""The headline: scores with intervals, as given and after temperature scaling, in words, and side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from metacal.evaluation.evaluation import Evaluation, evaluate_predictions
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import RESAMPLES, Bound, figures_with_intervals, only_bound
from metacal.evaluation.temperature_gain import TemperatureGain
from metacal.functional.binning import confidence_and_correctness

MEASURES = {
    "accuracy": ("Accuracy", "share of right answers; more is better, for all others less is"),
    "nll": ("NLL", "negative log-likelihood of the true class, in nats"),
    "brier": ("Brier score", "squared distance from the truth, 0 to 2"),
    "ece": ("ECE", "confidence against accuracy, 15 bins of equal width"),
    "mce": ("MCE", "the worst of those bins"),
    "adaptive_ece": ("Adaptive ECE", "15 bins of equal size"),
    "classwise_ece": ("Classwise ECE", "each class against the rest, averaged"),
    "debiased_ece_l2": ("Debiased ECE (l2)", "root mean square, bias of small bins taken out"),
    "sweep_ece": ("Sweep ECE", "as many bins as keep accuracy rising"),
    "smooth_ece": ("Smooth ECE", "a kernel in place of bins"),
}
FEWEST = 20
"""Samples below which no temperature is fitted for the headline."""


@dataclass(frozen=True)
class ScoreRow:
    """One measure: its value, the ends of its 95 % interval where there is one, and the same after temperature.

    A value is None where it is infinite: the NLL of a true class that was given a probability of 0. A one-sided
    interval says which bound it gives (see `only_bound`).
    """

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


@dataclass(frozen=True)
class Summary:
    """What to know first."""

    samples: int  # n
    total: int | None  # rows that the samples were drawn from at random; None if they are all there are
    num_classes: int  # K
    accuracy: float  # share of right answers
    confidence: float  # mean confidence
    sentences: list[str]  # over- or under-confidence and what temperature scaling would do, in words
    warning: str | None  # too few samples to tell, or None
    scores: list[ScoreRow]  # the measures
    # fitted on all samples; None where there are too few. "After" figures are cross-fitted: each part of the samples
    # has the temperature of the others.
    temperature: float | None


@dataclass(frozen=True)
class ComparedScore:
    """One measure over all sets, None where it is infinite; ``best`` share the best value to four digits."""

    key: str
    label: str
    values: list[float | None]
    lows: list[float | None]
    highs: list[float | None]
    bounds: list[Bound | None]
    best: list[int]


@dataclass(frozen=True)
class Comparison:
    """Several sets of predictions: their names, and one row a measure."""

    names: list[str]
    scores: list[ComparedScore]


def prepare_summary(predictions: Predictions, num_resamples: int = RESAMPLES) -> Summary:
    """Score predictions, as given and after temperature scaling, and put the outcome into words.

    Args:
        predictions: what to score.
        num_resamples: data sets drawn for the interval of a calibration error.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 100), (torch.arange(100) >= 60).long())
        >>> prepare_summary(said, num_resamples=10).sentences[0]
        'Over-confident: it says 90.0 % and is right 60.0 % of the time.'
    """
    before = evaluate_predictions(predictions, num_resamples=num_resamples)
    gain = before.gain if len(predictions) >= FEWEST else None
    after = None
    if gain is not None:
        scaled = replace(predictions, scores=gain.scaled(predictions.logits), is_logits=True)
        after = figures_with_intervals(scaled, num_resamples=num_resamples)
    rows = [
        ScoreRow(key, label, meaning, *_with_ends(before.figures, key), *_with_ends(after, key))
        for key, (label, meaning) in MEASURES.items()
    ]
    return Summary(
        samples=len(predictions),
        total=predictions.total,
        num_classes=predictions.num_classes,
        accuracy=before.figures["accuracy"],
        confidence=float(confidence_and_correctness(predictions.inputs)[0].double().mean()),
        sentences=_sentences(before, gain),
        warning=before.warning,
        scores=rows,
        temperature=None if gain is None else gain.temperature,
    )


def prepare_comparison(named: Sequence[tuple[str, Summary]]) -> Comparison | None:
    """Scores side by side; None for fewer than two sets."""
    if len(named) < 2:
        return None
    scores = []
    for place, (key, (label, _)) in enumerate(MEASURES.items()):
        rows = [summary.scores[place] for _, summary in named]
        shown = [math.inf if row.value is None else round(row.value, 4) for row in rows]
        best = max(shown) if key == "accuracy" else min(shown)
        scores.append(
            ComparedScore(
                key,
                label,
                [row.value for row in rows],
                [row.low for row in rows],
                [row.high for row in rows],
                [row.bound for row in rows],
                [number for number, value in enumerate(shown) if value == best] if len(set(shown)) > 1 else [],
            )
        )
    return Comparison([name for name, _ in named], scores)


def _with_ends(
    figures: Mapping[str, float] | None, key: str
) -> tuple[float | None, float | None, float | None, Bound | None]:
    if figures is None or not math.isfinite(figures[key]):
        return None, None, None, None
    low, high = figures[f"{key}_low"], figures[f"{key}_high"]
    if math.isnan(low):
        return figures[key], None, None, None
    return figures[key], low, high, only_bound(figures[key], low, high)


def _sentences(before: Evaluation, gain: TemperatureGain | None) -> list[str]:
    sentences = [before.verdict]
    if before.verdict.startswith("Neither") and before.figures["ece_low"] > 0.0:
        sentences.append("But it is over-confident at some levels of confidence and under-confident at others.")
    if gain is not None:
        temperature = f"{gain.temperature:g} (the end of its range)" if gain.at_bound else f"{gain.temperature:.2f}"
        effect = "would take" if gain.helps else "would not fix it, taking"
        sentences.append(
            f"A temperature of {temperature} {effect} its ECE from "
            f"{gain.ece_before * 100:.2f} % to {gain.ece_after * 100:.2f} %, and change no answer (cross-fitted: each "
            "part of the samples with the temperature of the rest)."
        )
    return sentences
