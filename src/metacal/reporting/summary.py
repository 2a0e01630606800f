"""The headline: scores with intervals, as given and after temperature scaling, and what they say in words."""

import math
from dataclasses import dataclass

from metacal.evaluation.evaluation import Evaluation, evaluate_predictions
from metacal.evaluation.intervals import RESAMPLES
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.temperature_gain import cross_fitted_logits
from metacal.functional.confidence import confidence_and_correctness

MEASURES = {
    "accuracy": ("Accuracy", "share of right answers; more is better, for all others less is"),
    "nll": ("NLL", "negative log-likelihood of the true class, in nats"),
    "brier": ("Brier score", "squared distance from the truth, 0 to 2"),
    "ece": ("ECE", "confidence against accuracy, 15 bins of equal width"),
    "mce": ("MCE", "the worst of those bins"),
    "adaptive_ece": ("Adaptive ECE", "15 bins of equal size"),
    "classwise_ece": ("Classwise ECE", "each class against the rest, averaged"),
    "debiased_ece": ("Debiased ECE", "root mean square, bias of small bins taken out"),
    "sweep_ece": ("Sweep ECE", "as many bins as keep accuracy rising"),
    "smooth_ece": ("Smooth ECE", "a kernel in place of bins"),
}
FEWEST = 20
"""Samples below which no temperature is fitted for the headline."""


@dataclass(frozen=True)
class ScoreRow:
    """One measure: its value, the ends of its 95 % interval where there is one, and the same after temperature.

    A value is None where it is infinite: the NLL of a true class that was given a probability of 0.
    """

    key: str
    label: str
    meaning: str
    value: float | None
    low: float | None
    high: float | None
    after: float | None
    after_low: float | None
    after_high: float | None


@dataclass(frozen=True)
class Summary:
    """What to know first.

    Attributes:
        samples: n.
        total: rows that the samples were drawn from at random; None if they are all there are.
        num_classes: K.
        accuracy: share of right answers.
        confidence: mean confidence.
        sentences: over- or under-confidence and what temperature scaling would do, in words.
        warning: too few samples to tell, or None.
        scores: the measures.
        temperature: fitted on all samples; None where there are too few. "After" figures are cross-fitted: each part of
            the samples has the temperature of the others.
    """

    samples: int
    total: int | None
    num_classes: int
    accuracy: float
    confidence: float
    sentences: list[str]
    warning: str | None
    scores: list[ScoreRow]
    temperature: float | None


def prepare_summary(predictions: Predictions, num_resamples: int = RESAMPLES) -> Summary:
    """Score predictions, as given and after temperature scaling, and put the outcome into words.

    Args:
        predictions: what to score.
        num_resamples: of the bootstrap; half as many after temperature scaling.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 100), (torch.arange(100) >= 60).long())
        >>> prepare_summary(said, num_resamples=10).sentences[0]
        'Over-confident: it says 90.0 % and is right 60.0 % of the time.'
    """
    before = evaluate_predictions(predictions, num_resamples=num_resamples)
    after = None
    if len(predictions) >= FEWEST:
        logits = cross_fitted_logits(predictions.logits, predictions.targets)
        scaled = Predictions(logits, True, predictions.targets, predictions.class_names)
        after = evaluate_predictions(scaled, num_resamples=(num_resamples + 1) // 2)
    rows = [
        ScoreRow(
            key, label, meaning, *_with_ends(before, key), *((None,) * 3 if after is None else _with_ends(after, key))
        )
        for key, (label, meaning) in MEASURES.items()
    ]
    return Summary(
        samples=len(predictions),
        total=predictions.total,
        num_classes=predictions.num_classes,
        accuracy=before.figures["accuracy"],
        confidence=float(confidence_and_correctness(predictions.inputs)[0].double().mean()),
        sentences=_sentences(before, after),
        warning=before.warning,
        scores=rows,
        temperature=before.gain.temperature if before.gain is not None and after is not None else None,
    )


def _with_ends(evaluation: Evaluation, key: str) -> tuple[float | None, float | None, float | None]:
    value, low, high = (evaluation.figures[name] for name in (key, f"{key}_low", f"{key}_high"))
    return (value, low, high) if math.isfinite(value) else (None, None, None)


def _sentences(before: Evaluation, after: Evaluation | None) -> list[str]:
    sentences = [before.verdict]
    if before.verdict.startswith("Neither") and before.figures["ece_low"] > 0.0:
        sentences.append("But it is too sure at some levels of confidence and not sure enough at others.")
    if after is not None and before.gain is not None:
        ece = f"ECE from {before.figures['ece'] * 100:.2f} % to {after.figures['ece'] * 100:.2f} %"
        helps = after.figures["ece"] < before.figures["ece"] and after.figures["nll"] < before.figures["nll"]
        temperature = f"{before.gain.temperature:.2f}"
        if before.gain.at_bound:
            temperature = f"{before.gain.temperature:g} (the end of its range)"
        effect = f"A temperature of {temperature} would take its {ece}"
        if not helps:
            effect = f"A temperature of {temperature} would not mend it, taking its {ece}"
        sentences.append(
            f"{effect}, and change no answer (cross-fitted: each part of the samples with the temperature of the rest)."
        )
    return sentences
