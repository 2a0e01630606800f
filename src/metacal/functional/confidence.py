"""The confidence of a prediction and whether it was right: the two columns that calibration is measured on."""

from collections.abc import Iterator

import torch
from torch import Tensor

from metacal.functional.inputs import Inputs, row_sum_tolerance


def confidence_and_correctness(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """All samples' confidences (float32 or wider) and whether each was right (bool), both ``(n,)``.

    For multiclass scores this is the top label's probability and whether the top label is the target; for
    yes/no events it is the probability of "yes" and whether the answer was "yes".
    """
    pairs = list(confidence_chunks(inputs))
    if not pairs:
        return inputs.scores.new_zeros(0), torch.zeros(0, dtype=torch.bool, device=inputs.scores.device)
    return torch.cat([confidences for confidences, _ in pairs]), torch.cat([correct for _, correct in pairs])


def confidence_chunks(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``(confidences, correct)`` chunk by chunk, so that memory stays bounded whatever the number of rows."""
    if inputs.is_events:
        for scores, outcomes, _ in inputs.events():
            yield inputs.to_probs(scores), outcomes == 1
    else:
        # Two tied tops need twice their value within the row's sum, so above this bound a top is unique.
        unique_above = 0.5 if inputs.is_logits else 0.5 + row_sum_tolerance(inputs.scores.dtype)
        if not inputs.validate and not inputs.is_logits:
            unique_above = torch.inf  # the sums have not been checked
        for scores, targets in inputs.chunks():
            top = scores.amax(dim=1)
            # Relative to the top, so that large logits lose nothing and two tied tops give at most 1/2 exactly.
            confidences = (scores - top.unsqueeze(1)).exp_().sum(dim=1).reciprocal_() if inputs.is_logits else top
            yield confidences, is_first_top(scores, targets, top, confidences > unique_above)


def is_first_top(scores: Tensor, targets: Tensor, top: Tensor, is_unique: Tensor) -> Tensor:
    """Whether each target is the first class with the top score: ``scores.argmax(1) == targets``, but cheaper.

    On a CPU ``argmax`` costs several times ``amax``. The target is right if its score is the top one, except
    where an earlier class has the same score; only rows that may hold such a tie, those not known to have a unique
    ``top`` (each row's highest score), are compared again.
    """
    if scores.device.type != "cpu":
        return scores.argmax(dim=1) == targets
    correct = scores.gather(1, targets.unsqueeze(1)).squeeze(1) == top
    rows = (correct & ~is_unique).nonzero().squeeze(1)
    if not len(rows):
        return correct
    others = scores.index_select(0, rows).scatter_(1, targets[rows].unsqueeze(1), -torch.inf)
    tied = rows[others.amax(dim=1) == top[rows]]
    if len(tied):
        correct[tied] = scores[tied].argmax(dim=1) == targets[tied]
    return correct
