"""Brier score, its split into calibration and refinement, and the Brier loss for training."""

from dataclasses import replace

import torch
from torch import Tensor

from metacal.functional.binning import BinStatistics
from metacal.functional.boundary import public
from metacal.functional.classwise_calibration_error import class_statistics
from metacal.functional.inputs import Inputs, class_logits_and_targets, logits_against, read_inputs
from metacal.functional.negative_log_likelihood import Decomposition
from metacal.functional.reduction import reduce_losses


@public
def brier_score(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Tensor:
    """Mean squared distance of the probabilities from the outcome: ``sum_k (p_k - y_k) ** 2``, in [0, 2].

    For binary and multilabel scores it is the mean of ``(p - y) ** 2`` over all events, in [0, 1]. Args and errors as
    in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> round(brier_score(probs=torch.tensor([[0.8, 0.2]]), targets=torch.tensor([0])).item(), 4)
        0.08
    """
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    total, count = brier_sums(inputs)
    return total / count


def brier_sums(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Sum of squared distances (float64) and the number of terms (int64), read chunk by chunk."""
    total = torch.zeros((), dtype=torch.float64, device=inputs.scores.device)
    count = torch.zeros((), dtype=torch.int64, device=inputs.scores.device)
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            # The probability of the answer that did not come, from logits without a difference to 1.
            is_logits = inputs.is_logits
            distances = inputs.to_probs(logits_against(scores, outcomes)) if is_logits else scores - outcomes
            total = total + distances.square().sum(dtype=torch.float64)
            count = count + len(scores)
        return total, count
    for scores, targets in inputs.chunks():
        distances = _squared_distances(inputs.to_probs(scores), targets, sum_to_one=inputs.is_logits)
        total = total + distances.sum(dtype=torch.float64)
        count = count + len(targets)
    return total, count


@public
def brier_decomposition(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    num_bins: int = 15,
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Decomposition:
    """Brier score as calibration + refinement, over equal-width bins of every class's probability.

    Calibration is what would be saved by shifting each bin's probabilities to the frequency seen in it,
    ``sum_k sum_m w_km gap_km ** 2``; refinement is the rest. The two add up to `brier_score`. Args and errors as in
    `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> parts = brier_decomposition(probs=torch.tensor([0.9, 0.9]), targets=torch.tensor([1, 0]))
        >>> [round(part.item(), 4) for part in parts]
        [0.16, 0.25]
    """
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    total, count = brier_sums(inputs)
    inputs = replace(inputs, validate=False)  # the sums have checked every value
    return split_brier(total / count, count, class_statistics(inputs, num_bins))


def split_brier(score: Tensor, count: Tensor, statistics: BinStatistics) -> Decomposition:
    """The two parts of a Brier score over ``count`` terms, given the per-class statistics of the same samples."""
    calibration = (statistics.counts * statistics.gaps.square()).sum() / count
    calibration = torch.minimum(calibration, score)  # a part is at most the whole, whatever the rounding
    return Decomposition(calibration, score - calibration)


@public
def brier_loss(*, logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Brier score of ``softmax(logits)`` as a training loss, differentiable, one value per sample before reduction.

    Args:
        logits: ``(n, K)``, or ``(n,)`` or ``(n, 1)`` for a binary model with one logit (two classes all the same).
        targets: int ``(n,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Examples:
        >>> import torch
        >>> brier_loss(logits=torch.zeros(1, 2), targets=torch.tensor([0])).item()
        0.5
    """
    wide, targets = class_logits_and_targets(logits, targets)
    return reduce_losses(_squared_distances(torch.softmax(wide, dim=1), targets, sum_to_one=True), reduction)


def _squared_distances(probs: Tensor, targets: Tensor, *, sum_to_one: bool) -> Tensor:
    """``(1 - p_target) ** 2`` plus the squares of the others: nothing cancels, however small the distance.

    What the target lacks is the sum of the others in a softmax; given probabilities may sum to 1 in four digits only.
    """
    rows = targets.unsqueeze(1)
    others = probs.scatter(1, rows, 0.0)
    missing = others.sum(dim=1) if sum_to_one else 1.0 - probs.gather(1, rows).squeeze(1)
    return missing.square() + others.square().sum(dim=1)
