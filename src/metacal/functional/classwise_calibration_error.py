"""Classwise calibration error: every class's probability against how often that class came, one against the rest."""

from collections.abc import Iterator

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.arguments import check_choice, check_num_bins, check_threshold
from metacal.functional.binning import (
    BinStatistics,
    accumulate,
    calibration_error,
    equal_width_edges,
    equal_width_index,
)
from metacal.functional.boundary import public
from metacal.functional.inputs import Inputs, ScoreArguments, read_inputs


@public
def classwise_calibration_error(
    *, num_bins: int = 15, norm: str = "l1", threshold: float | None = None, **scores: Unpack[ScoreArguments]
) -> Tensor:
    """Mean over the classes (or the labels of a multilabel model) of the one-against-rest calibration error.

    K comes from the array: a class that never occurs in the targets counts as any other. Args and errors as in
    `expected_calibration_error`, and:

    Args:
        num_bins: M.
        norm: ``"l1"``, ``"l2"`` or ``"max"``, within a class; classes are averaged.
        threshold: leave out probabilities at or below it (a thousand classes are mostly near-zeros, which hide
            the rest); a class with none left is left out of the mean.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4]])
        >>> round(classwise_calibration_error(probs=probs, targets=torch.tensor([0, 1])).item(), 4)
        0.4
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    return calibration_error(class_statistics(read_inputs(**scores), num_bins, threshold), norm).nanmean()


def class_statistics(inputs: Inputs, num_bins: int, threshold: float | None = None) -> BinStatistics:
    """Equal-width statistics of each class against the rest, ``(K, M)``, read chunk by chunk."""
    check_num_bins(num_bins)
    check_threshold(threshold)
    statistics = BinStatistics.zeros(inputs.num_classes, num_bins, device=inputs.scores.device)
    edges = equal_width_edges(num_bins, inputs.scores.device)
    for probs, outcomes, labels in one_against_rest(inputs):
        if threshold is not None:
            kept = ~(probs <= threshold)  # a NaN is kept, so that it is reported
            probs, outcomes, labels = probs[kept], outcomes[kept], labels[kept]
        index = equal_width_index(probs, num_bins).add_(labels, alpha=num_bins)
        found = accumulate(index, probs, outcomes, edges, inputs.num_classes, may_hold_nan=not inputs.validate)
        statistics = statistics + found
    return statistics


def one_against_rest(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield ``(probs, outcomes, labels)``, flat: every class's probability, whether the class came, and its number."""
    if inputs.is_events:
        for scores, outcomes, labels in inputs.events():
            yield inputs.to_probs(scores), outcomes == 1, labels
        return
    classes = torch.arange(inputs.num_classes, device=inputs.scores.device)
    for scores, targets in inputs.chunks(temporaries=8):
        is_target = targets.unsqueeze(1) == classes
        yield inputs.to_probs(scores).reshape(-1), is_target.reshape(-1), classes.expand_as(is_target).reshape(-1)
