"""The headline: scores with intervals, as given and after temperature scaling, and what they say in words."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import Scores, score_predictions, temperature_scaled
from metacal.functional.bootstrap import Interval, binned_interval, bootstrap_interval
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.expected_calibration_error import bin_statistics
from metacal.functional.inputs import read_inputs
from metacal.functional.sample_size import sample_size_warning
from metacal.functional.temperature import fit_temperature

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
        num_classes: K.
        accuracy: share of right answers.
        confidence: mean confidence.
        gap: mean confidence minus accuracy.
        gap_low: lower end of the gap's 95 % interval.
        gap_high: upper end of it.
        verdict: ``over-confident``, ``under-confident``, ``uneven`` (over here, under there) or ``calibrated`` (no
            error that chance would not explain).
        sentences: the verdict and what temperature scaling would do, in words.
        warning: too few samples to tell, or None.
        scores: the measures.
        cross_fitted: the temperatures of the two halves, each fitted on the other; None where none could be fitted.
    """

    samples: int
    num_classes: int
    accuracy: float
    confidence: float
    gap: float
    gap_low: float
    gap_high: float
    verdict: str
    sentences: list[str]
    warning: str | None
    scores: list[ScoreRow]
    cross_fitted: list[float] | None


def prepare_summary(predictions: Predictions) -> Summary:
    """Score predictions and put the outcome into words.

    Examples:
        >>> import torch
        >>> said = Predictions.from_probs(torch.tensor([[0.9, 0.1]] * 100), (torch.arange(100) >= 60).long())
        >>> summary = prepare_summary(said)
        >>> summary.verdict, summary.sentences[0]
        ('over-confident', 'Over-confident: it is 90.0 % sure on average and right 60.0 % of the time.')
    """
    probs, targets = predictions.probs, predictions.targets
    scores, intervals = _scores(probs, targets)
    confidences, correct = confidence_and_correctness(read_inputs(probs=probs, targets=targets, validate=False))
    gaps = confidences.double() - correct.double()
    spread = 1.96 * float(gaps.std(correction=0)) / len(gaps) ** 0.5
    gap = float(gaps.mean())
    verdict = _verdict(gap - spread, gap + spread, intervals["ece"])
    after, after_intervals, temperatures = None, dict[str, Interval](), None
    if len(predictions) >= FEWEST:
        scaled, temperatures = cross_fitted(predictions)
        after, after_intervals = _scores(scaled, targets)
    rows = [
        ScoreRow(
            key,
            label,
            meaning,
            *_value_and_ends(getattr(scores, key), intervals.get(key)),
            *((None, None, None) if after is None else _value_and_ends(getattr(after, key), after_intervals.get(key))),
        )
        for key, (label, meaning) in MEASURES.items()
    ]
    mean = float(confidences.double().mean())
    sentences = [_verdict_sentence(verdict, mean, scores.accuracy)]
    if after is not None and temperatures is not None:
        sentences.append(_temperature_sentence(scores, after, temperatures))
    return Summary(
        samples=len(predictions),
        num_classes=predictions.num_classes,
        accuracy=scores.accuracy,
        confidence=mean,
        gap=gap,
        gap_low=gap - spread,
        gap_high=gap + spread,
        verdict=verdict,
        sentences=sentences,
        warning=sample_size_warning(bin_statistics(probs=probs, targets=targets, validate=False)),
        scores=rows,
        cross_fitted=temperatures,
    )


def cross_fitted(predictions: Predictions) -> tuple[Tensor, list[float]]:
    """Probabilities after temperature scaling, each half of the samples with the temperature of the other half.

    The halves are the even and the odd rows.
    """
    probs, logits, targets = predictions.probs, predictions.logits, predictions.targets
    scaled = torch.empty_like(probs, dtype=torch.float64)
    temperatures = []
    for half in (0, 1):
        own, other = slice(half, None, 2), slice(1 - half, None, 2)
        fit = fit_temperature(logits=logits[other], targets=targets[other], validate=False)
        scaled[own] = temperature_scaled(probs[own], fit.temperature)
        temperatures.append(fit.temperature)
    return scaled, temperatures


def _scores(probs: Tensor, targets: Tensor) -> tuple[Scores, dict[str, Interval]]:
    scores = score_predictions(probs=probs, targets=targets)
    confidences, correct = confidence_and_correctness(read_inputs(probs=probs, targets=targets, validate=False))
    true_probs = probs.gather(1, targets.unsqueeze(1)).squeeze(1).double()
    losses = {
        "accuracy": correct.double(),
        "nll": -true_probs.clamp(min=torch.finfo(probs.dtype).tiny).log(),
        "brier": probs.double().square().sum(dim=1) - 2.0 * true_probs + 1.0,
    }
    intervals = {name: _mean_interval(values) for name, values in losses.items()}
    intervals["ece"] = Interval(*(torch.tensor(value) for value in (scores.ece, scores.ece_low, scores.ece_high)))
    intervals["mce"] = binned_interval(confidences, correct, norm="max")
    return scores, intervals


def _mean_interval(values: Tensor) -> Interval:
    return bootstrap_interval(lambda rows: values[rows].mean(dim=1), values)


def _value_and_ends(value: float, interval: Interval | None) -> tuple[float | None, float | None, float | None]:
    if not math.isfinite(value):
        return None, None, None
    return (value, None, None) if interval is None else (value, float(interval.low), float(interval.high))


def _verdict(low: float, high: float, ece: Interval) -> str:
    if low > 0.0:
        return "over-confident"
    if high < 0.0:
        return "under-confident"
    return "uneven" if float(ece.low) > 0.0 else "calibrated"


def _verdict_sentence(verdict: str, confidence: float, accuracy: float) -> str:
    figures = f"{confidence * 100:.1f} % sure on average and right {accuracy * 100:.1f} % of the time"
    if verdict == "uneven":
        return f"Uneven: it is {figures}, but too sure in some bins of confidence and not sure enough in others."
    if verdict == "calibrated":
        return f"No miscalibration found: it is {figures}, and chance alone would explain the difference."
    return f"{verdict.capitalize()}: it is {figures}."


def _temperature_sentence(before: Scores, after: Scores, temperatures: list[float]) -> str:
    low, high = sorted(temperatures)
    near = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    if after.ece < before.ece and after.nll < before.nll:
        effect = f"A temperature of {near} would take its ECE from {before.ece * 100:.2f} % to {after.ece * 100:.2f} %"
    else:
        effect = (
            f"Temperature scaling ({near}) would not mend it: ECE {before.ece * 100:.2f} % to {after.ece * 100:.2f} %"
        )
    return f"{effect} and change no answer (cross-fitted: each half scored with the temperature of the other half)."
