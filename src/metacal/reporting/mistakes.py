"""The mistakes a model was surest of, and the pairs of classes it confuses most."""

from dataclasses import dataclass

import torch

from metacal.evaluation.predictions import Predictions
from metacal.functional.arguments import check_integer
from metacal.functional.confidence import confidence_and_correctness
from metacal.functional.inputs import at_least_float32


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction.

    Attributes:
        row: of the sample, counted from 0.
        predicted: name of the class that the model said.
        confidence: how sure it was.
        actual: name of the true class.
        actual_prob: the probability that the model gave to it.
    """

    row: int
    predicted: str
    confidence: float
    actual: str
    actual_prob: float


@dataclass(frozen=True)
class Confusion:
    """One kind of mistake: how often one class was taken for another, and how surely on average."""

    actual: str
    predicted: str
    count: int
    confidence: float


@dataclass(frozen=True)
class Mistakes:
    """All mistakes in short.

    Attributes:
        count: wrong predictions in all.
        confident: those of them with a confidence of at least 0.9.
        surest: the most confident ones, surest first; rows in order where confidences are equal.
        pairs: the most frequent confusions.
    """

    count: int
    confident: int
    surest: list[Mistake]
    pairs: list[Confusion]


def prepare_mistakes(predictions: Predictions, most: int = 15, most_pairs: int = 10) -> Mistakes:
    """The ``most`` surest mistakes and the ``most_pairs`` most frequent confusions.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> mistakes = prepare_mistakes(Predictions.from_probs(probs, torch.tensor([1, 0, 0]), ("cat", "dog")))
        >>> [(one.row, one.predicted, one.actual) for one in mistakes.surest]
        [(0, 'cat', 'dog'), (2, 'dog', 'cat')]
    """
    check_integer("most", most, 1)
    check_integer("most_pairs", most_pairs, 1)
    targets, names = predictions.targets, predictions.class_names
    confidences, correct = confidence_and_correctness(predictions.inputs)
    rows = (~correct).nonzero().squeeze(1)
    confidences, predicted = confidences[rows], predictions.scores[rows].argmax(dim=1)
    order = confidences.argsort(descending=True, stable=True)[:most]
    actual = targets[rows[order]]
    probs = predictions.inputs.to_probs(at_least_float32(predictions.scores[rows[order]]))
    numbers = rows if predictions.row_numbers is None else predictions.row_numbers[rows]
    surest = [
        Mistake(row, names[said], confidence, names[true], actual_prob)
        for row, said, confidence, true, actual_prob in zip(
            numbers[order].tolist(),
            predicted[order].tolist(),
            confidences[order].tolist(),
            actual.tolist(),
            probs.gather(1, actual.unsqueeze(1)).squeeze(1).tolist(),
            strict=True,
        )
    ]
    cells, places, counts = torch.unique(
        targets[rows] * predictions.num_classes + predicted, return_inverse=True, return_counts=True
    )
    sums = torch.zeros(len(cells), dtype=torch.float64, device=targets.device)
    sums = sums.index_add(0, places, confidences.double())
    frequent = counts.argsort(descending=True, stable=True)[:most_pairs]
    pairs = [
        Confusion(names[cell // predictions.num_classes], names[cell % predictions.num_classes], count, total / count)
        for cell, count, total in zip(
            cells[frequent].tolist(), counts[frequent].tolist(), sums[frequent].tolist(), strict=True
        )
    ]
    return Mistakes(len(rows), int((confidences >= 0.9).sum()), surest, pairs)
