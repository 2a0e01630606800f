"""`CalibrationMetric`: a calibration metric for Hugging Face `evaluate`, which loads this file.

``evaluate.load(metacal.integrations.CALIBRATION_METRIC)`` does; put it into a Space as it is to share it on the Hub.
"""

from typing import Any

from metacal.errors import InvalidValueError, needs
from metacal.evaluation.predictions import Predictions
from metacal.evaluation.scores import RESAMPLES, Binned
from metacal.functional.arguments import check_choice, check_flag, check_integer, check_num_bins
from metacal.functional.boundary import to_tensor
from metacal.functional.inputs import class_logits

with needs("evaluate"):
    import datasets
    import evaluate

FIGURES = ("accuracy", "nll", "brier", "ece", "classwise_ece", "smooth_ece")
DESCRIPTION = """\
How far the confidence of a classifier can be trusted: expected calibration error (top label, bins of equal width), its
classwise and its smooth (bin-free) form, negative log-likelihood and Brier score, with 95 % intervals if asked for.
Fractions; NLL in nats, Brier score from 0 to 2; lower is better.
"""
ARGUMENTS = """\
Args:
    predictions: a score for each class, (n, K), or of a binary model the one of class 1, (n,).
    references: class numbers from 0, (n,).
    inputs: what the predictions are, "probs" (rows sum to 1) or "logits"; never guessed.
    intervals: also return the ends of 95 % intervals of the true values, as x_low and x_high.
    num_bins: bins of the calibration errors.
    num_resamples: data sets drawn for the interval of a calibration error.
    seed: of these draws.
Returns:
    accuracy, nll, brier, ece, classwise_ece and smooth_ece.
Examples:
    >>> calibration = evaluate.load(metacal.integrations.CALIBRATION_METRIC)
    >>> round(calibration.compute(predictions=[[0.9, 0.1], [0.3, 0.7]], references=[0, 0])["ece"], 4)
    0.4
"""


class CalibrationMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate has no types
    """Calibration errors and proper scores of probabilities or logits; `evaluate` documents ``compute``."""

    def _info(self) -> evaluate.MetricInfo:
        labels = datasets.Value("int64")
        rows = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            inputs_description=ARGUMENTS,
            citation="https://openreview.net/forum?id=R2hUure38l",
            features=[
                datasets.Features({"predictions": rows, "references": labels}),
                datasets.Features({"predictions": datasets.Value("float64"), "references": labels}),
            ],
        )

    def _compute(
        self,
        predictions: Any,
        references: Any,
        inputs: str = "probs",
        intervals: bool = False,
        num_bins: int = 15,
        num_resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> dict[str, float]:
        check_choice("inputs", inputs, ("probs", "logits"))
        check_flag("intervals", intervals)
        check_num_bins(num_bins)
        check_integer("num_resamples", num_resamples, 1)
        if not len(references):
            raise InvalidValueError("`references` must hold at least one sample, got none.")
        scores = to_tensor("predictions", predictions)
        if inputs == "probs":
            said = Predictions.from_probs(scores, references)
        else:
            said = Predictions.from_logits(class_logits(scores) if scores.ndim == 1 else scores, references)
        binned = Binned.of(said.inputs, num_bins)
        figures = binned.with_intervals(num_resamples, seed) if intervals else binned.figures()
        ends = ("", "_low", "_high") if intervals else ("",)
        return {name + end: figures[name + end] for name in FIGURES for end in ends}
