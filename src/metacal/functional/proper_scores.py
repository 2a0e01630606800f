"""Proper scores, NLL and Brier score, and their decomposition into calibration and refinement."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from metacal.functional.binning import BinStatistics
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import class_statistics
from metacal.functional.inputs import Inputs, ScoreArguments, log_probs, logits_against, read_inputs
from metacal.functional.temperature import fit_temperature

__all__ = ["Decomposition", "brier_decomposition", "brier_score", "likelihood_decomposition", "negative_log_likelihood"]


class Decomposition(NamedTuple):
    """A proper score as ``calibration + refinement``: float64 scalars."""

    calibration: Tensor
    refinement: Tensor


@public
def negative_log_likelihood(**scores: Unpack[ScoreArguments]) -> Tensor:
    """Mean of ``-log p(target)`` in nats; for binary and multilabel scores, the mean over all events.

    A target with probability exactly 0 makes it infinite: that is the score of such a forecast, not an error.
    Args and errors as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> round(negative_log_likelihood(probs=torch.tensor([[0.5, 0.5]]), targets=torch.tensor([1])).item(), 4)
        0.6931
    """
    total, count = likelihood_sums(read_inputs(**scores))
    return total / count


def likelihood_sums(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Sum of ``-log p(target)`` (float64) and the number of terms (int64), read in chunks."""
    return _sums(inputs, _likelihood_terms(inputs))


def _likelihood_terms(inputs: Inputs) -> Iterator[Tensor]:
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            if inputs.is_logits:
                yield torch.nn.functional.softplus(logits_against(scores, outcomes))
            else:
                probs = scores.clamp(0.0, 1.0)
                yield -torch.where(outcomes == 1, probs.log(), (-probs).log1p())
        return
    for scores, targets in inputs.chunks():
        rows = targets.unsqueeze(1)
        yield _losses(scores, rows) if inputs.is_logits else -scores.gather(1, rows).clamp(max=1.0).log()


def _sums(inputs: Inputs, terms: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """Sum (float64) and number (int64) of all terms."""
    total = torch.zeros((), dtype=torch.float64, device=inputs.scores.device)
    count = 0
    for each in terms:
        total, count = total + each.sum(dtype=torch.float64), count + len(each)
    return total, torch.full((), count, device=inputs.scores.device)


def _losses(logits: Tensor, rows: Tensor) -> Tensor:
    """``-log p(target)`` of each row in float64; nothing cancels, however large the logits or small the loss.

    With logits relative to the top, the other classes are summed up apart from the target, whose ``exp`` is 1 if it
    is the top: the 1 is then never added to a number that it would swallow.
    """
    top = logits.amax(dim=1, keepdim=True)
    below_top = (top.double() - logits.gather(1, rows).double()).squeeze(1)  # float64 holds any two float32 apart
    others = (logits - top).scatter_(1, rows, -torch.inf).exp_().sum(dim=1).double()
    return torch.log1p(others + torch.expm1(-below_top)) + below_top


@public
def likelihood_decomposition(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Decomposition:
    """Multiclass NLL as calibration + refinement, where recalibration means one temperature.

    Refinement is the NLL at the best temperature, calibration the rest: what temperature scaling, fitted on these
    very samples, would save. The two add up to `negative_log_likelihood`. Args and errors as in
    `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
        >>> parts = likelihood_decomposition(logits=logits, targets=torch.tensor([0, 0, 1, 1]))
        >>> [round(part.item(), 3) for part in parts]  # 3 of 4 right, at a confidence of 0.9999
        [1.688, 0.562]
    """
    inputs = read_inputs(
        logits=logits, probs=probs, targets=targets, classes_only=True, ignore_index=ignore_index, validate=validate
    )
    total, count = likelihood_sums(inputs)
    whole = total / count
    scores = inputs.scores if inputs.is_logits else log_probs(inputs.scores)
    fit = fit_temperature(logits=scores, targets=inputs.targets, validate=False)
    best = negative_log_likelihood(logits=scores.double() / fit.temperature, targets=inputs.targets, validate=False)
    refinement = torch.minimum(best, whole)
    return Decomposition(whole - refinement, refinement)


@public
def brier_score(**scores: Unpack[ScoreArguments]) -> Tensor:
    """Mean squared distance of the probabilities from the outcome: ``sum_k (p_k - y_k) ** 2``, in [0, 2].

    For binary and multilabel scores it is the mean of ``(p - y) ** 2`` over all events, in [0, 1]. Args and errors as
    in `expected_calibration_error`.
    """
    total, count = brier_sums(read_inputs(**scores))
    return total / count


def brier_sums(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Sum of squared distances (float64) and the number of terms (int64), read in chunks."""
    return _sums(inputs, _brier_terms(inputs))


def _brier_terms(inputs: Inputs) -> Iterator[Tensor]:
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            # The probability of the outcome that did not occur; from logits, without subtracting from 1.
            is_logits = inputs.is_logits
            yield (inputs.to_probs(logits_against(scores, outcomes)) if is_logits else scores - outcomes).square()
        return
    for scores, targets in inputs.chunks():
        yield squared_distances(inputs.to_probs(scores), targets, sum_to_one=inputs.is_logits)


@public
def brier_decomposition(*, num_bins: int = 15, **scores: Unpack[ScoreArguments]) -> Decomposition:
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
    inputs = read_inputs(**scores)
    total, count = brier_sums(inputs)
    inputs = replace(inputs, validate=False)  # the sums have checked every value
    return split_brier(total / count, count, class_statistics(inputs, num_bins))


def split_brier(score: Tensor, count: Tensor, statistics: BinStatistics) -> Decomposition:
    """The two parts of a Brier score over ``count`` terms, given the per-class statistics of the same samples."""
    calibration = (statistics.counts * statistics.gaps.square()).sum() / count
    calibration = torch.minimum(calibration, score)  # a part is at most the whole, whatever the rounding
    return Decomposition(calibration, score - calibration)


def squared_distances(probs: Tensor, targets: Tensor, *, sum_to_one: bool) -> Tensor:
    """``(1 - p_target) ** 2`` plus the squares of the others: nothing cancels, however small the distance.

    What the target lacks is the sum of the others in a softmax; given probabilities may sum to 1 in four digits only.
    """
    rows = targets.unsqueeze(1)
    others = probs.scatter(1, rows, 0.0)
    missing = others.sum(dim=1) if sum_to_one else 1.0 - probs.gather(1, rows).squeeze(1)
    return missing.square() + others.square().sum(dim=1)
