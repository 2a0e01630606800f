"""Numbers of the per-class diagrams: can the model be believed when it says *this* class?"""

from dataclasses import dataclass

import torch

from metacal.evaluation.predictions import Predictions
from metacal.functional.binning import (
    accumulate,
    calibration_error,
    equal_width_edges,
    equal_width_index,
)
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.confidence import confidence_and_correctness
from metacal.reporting.reliability import Bins, finite, rows_of, to_bins

MOST_SHOWN = 200
"""Classes that get a diagram of their own."""


@dataclass(frozen=True)
class ClassReliability:
    """One class.

    Attributes:
        name: of the class.
        support: samples of this class.
        predicted: samples that the model takes for this class.
        accuracy: the share of those that it is right about (precision); None where it never says this class.
        confidence: its mean confidence in them; None where it never says this class.
        recall: the share of this class's samples that it finds; None where the class does not occur.
        classwise_ece: calibration error of this class's probability over all samples, one against the rest.
        ece: calibration error of the samples that the model takes for this class; None without such samples.
        bins: their reliability diagram; None for classes that are not among the `MOST_SHOWN` worst.
    """

    name: str
    support: int
    predicted: int
    accuracy: float | None
    confidence: float | None
    recall: float | None
    classwise_ece: float
    ece: float | None
    bins: Bins | None


@dataclass(frozen=True)
class Classes:
    """All classes.

    Attributes:
        edges: M + 1 edges of the bins.
        rows: one a class, in their order.
        worst_first: numbers of the classes that were ever predicted, the largest calibration error first, at most
            `MOST_SHOWN`.
    """

    edges: list[float]
    rows: list[ClassReliability]
    worst_first: list[int]


def prepare_classes(predictions: Predictions, num_bins: int = 10) -> Classes:
    """Reliability of each class among the samples predicted as it, with the worst singled out.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> first, second = prepare_classes(Predictions.from_probs(probs, torch.tensor([0, 1, 1]))).rows
        >>> first.predicted, first.accuracy, second.recall
        (2, 0.5, 0.5)
    """
    targets, size = predictions.targets, predictions.num_classes
    confidences, correct = confidence_and_correctness(predictions.inputs)
    index = equal_width_index(confidences, num_bins) + predictions.predicted * num_bins
    statistics = accumulate(index, confidences, correct, equal_width_edges(num_bins, targets.device), size)
    support = torch.bincount(targets, minlength=size).tolist()
    errors = calibration_error(class_statistics(predictions.inputs, 15)).tolist()
    own = rows_of(statistics)
    own_errors = finite(calibration_error(statistics).tolist())
    predicted_classes = (number for number, error in enumerate(own_errors) if error is not None)
    worst_first = sorted(predicted_classes, key=lambda number: -(own_errors[number] or 0.0))[:MOST_SHOWN]
    shown = set(worst_first)
    rows = []
    for number, name in enumerate(predictions.class_names):
        count, right = int(own[number].total), int(own[number].correct_sums.sum())
        rows.append(
            ClassReliability(
                name=name,
                support=support[number],
                predicted=count,
                accuracy=right / count if count else None,
                confidence=float(own[number].confidence_sums.sum()) / count if count else None,
                recall=right / support[number] if support[number] else None,
                classwise_ece=errors[number],
                ece=own_errors[number],
                bins=to_bins(own[number]) if number in shown else None,
            )
        )
    return Classes(statistics.edges.tolist(), rows, worst_first)
