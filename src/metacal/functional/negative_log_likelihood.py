"""Negative log-likelihood, and its split into what recalibration would mend and what it would not."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.functional.boundary import public
from metacal.functional.inputs import Inputs, log_probs, logits_against, read_inputs
from metacal.functional.temperature import fit_temperature


class Decomposition(NamedTuple):
    """A proper score as ``calibration + refinement``: float64 scalars."""

    calibration: Tensor
    refinement: Tensor


@public
def negative_log_likelihood(
    *,
    logits: Tensor | None = None,
    probs: Tensor | None = None,
    targets: Tensor,
    multilabel: bool = False,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Tensor:
    """Mean of ``-log p(target)`` in nats; for binary and multilabel scores, the mean over all events.

    A target with probability exactly 0 makes it infinite: that is the score of such a forecast, not an error.
    Args and errors as in `expected_calibration_error`.

    Examples:
        >>> import torch
        >>> round(negative_log_likelihood(probs=torch.tensor([[0.5, 0.5]]), targets=torch.tensor([1])).item(), 4)
        0.6931
    """
    inputs = read_inputs(targets, logits, probs, multilabel=multilabel, ignore_index=ignore_index, validate=validate)
    total, count = likelihood_sums(inputs)
    return total / count


def likelihood_sums(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Sum of ``-log p(target)`` (float64) and the number of terms (int64), read chunk by chunk."""
    total = torch.zeros((), dtype=torch.float64, device=inputs.scores.device)
    count = torch.zeros((), dtype=torch.int64, device=inputs.scores.device)
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            if inputs.is_logits:
                losses = torch.nn.functional.softplus(logits_against(scores, outcomes))
            else:
                probs = scores.clamp(0.0, 1.0)
                losses = -torch.where(outcomes == 1, probs.log(), (-probs).log1p())
            total, count = total + losses.sum(dtype=torch.float64), count + len(losses)
        return total, count
    for scores, targets in inputs.chunks():
        rows = targets.unsqueeze(1)
        losses = _losses(scores, rows) if inputs.is_logits else -scores.gather(1, rows).clamp(max=1.0).log()
        total, count = total + losses.sum(dtype=torch.float64), count + len(losses)
    return total, count


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
    inputs = read_inputs(targets, logits, probs, classes_only=True, ignore_index=ignore_index, validate=validate)
    total, count = likelihood_sums(inputs)
    whole = total / count
    scores = inputs.scores if inputs.is_logits else log_probs(inputs.scores)
    fit = fit_temperature(logits=scores, targets=inputs.targets, validate=False)
    best = negative_log_likelihood(logits=scores.double() / fit.temperature, targets=inputs.targets, validate=False)
    refinement = torch.minimum(best, whole)
    return Decomposition(whole - refinement, refinement)
