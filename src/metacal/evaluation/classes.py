"""Figures class by class, and which classes are confused."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.binning import BinStatistics, calibration_error

CONFUSED = 10
"""Pairs of classes to list."""


class ClassFigures(NamedTuple):
    """One class."""

    name: str
    samples: int  # whose target it is
    recall: float | None  # None without samples
    precision: float | None  # None if it was never predicted
    mean_prob: float
    frequency: float  # its share of all targets
    ece: float  # of its probability, against the rest


class ConfusedPair(NamedTuple):
    """Samples of class ``target`` that were taken for ``predicted``: how many, and which share of the class."""

    target: str
    predicted: str
    samples: int
    share: float


def confusion_counts(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """int64 ``(K, K)``: row is the target, column the prediction.

    Examples:
        >>> import torch
        >>> confusion_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    return torch.bincount(targets * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def class_figures(
    counts: Tensor, mean_probs: Tensor, statistics: BinStatistics, class_names: tuple[str, ...]
) -> list[ClassFigures]:
    """Figures of every class from `confusion_counts`, mean probabilities ``(K,)`` and bins ``(K, M)``."""
    total = max(int(counts.sum()), 1)
    of_class, named, right = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    errors, probs = calibration_error(statistics).tolist(), mean_probs.tolist()
    return [
        ClassFigures(
            name,
            of_class[k],
            right[k] / of_class[k] if of_class[k] else None,
            right[k] / named[k] if named[k] else None,
            probs[k],
            of_class[k] / total,
            errors[k],
        )
        for k, name in enumerate(class_names)
    ]


def confused_pairs(counts: Tensor, class_names: tuple[str, ...], most: int = CONFUSED) -> list[ConfusedPair]:
    """The pairs that are confused most often, most often first.

    Examples:
        >>> import torch
        >>> confused_pairs(torch.tensor([[8, 2], [1, 9]]), ("cat", "dog"))[0]
        ConfusedPair(target='cat', predicted='dog', samples=2, share=0.2)
    """
    off = counts.clone().fill_diagonal_(0)
    values, places = off.flatten().sort(descending=True, stable=True)
    pairs = []
    for count, place in zip(values[:most].tolist(), places[:most].tolist(), strict=True):
        if count:
            row, column = divmod(place, len(class_names))
            pairs.append(ConfusedPair(class_names[row], class_names[column], count, count / int(counts[row].sum())))
    return pairs
