"""Cross-entropy with hard or soft targets."""

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_float_tensor, check_tensor
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits, class_logits_and_targets
from metacal.functional.reduction import reduce_losses

NO_LABEL = -(2**31)


@public
def soft_cross_entropy(
    *, logits: Tensor, targets: Tensor, class_weights: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-sum_k w_k s_k log p_k`` for soft labels s, whose rows need **not** sum to 1.

    Args:
        logits: ``(n, K)``.
        targets: float ``(n, K)``.
        class_weights: w, ``(K,)``; None is 1. The mean is that over samples all the same, as in
            `torch.nn.functional.cross_entropy` with probabilities.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Examples:
        >>> import torch
        >>> half = soft_cross_entropy(logits=torch.zeros(1, 2), targets=torch.tensor([[0.25, 0.25]]))
        >>> round(half.item(), 4)  # half of log 2
        0.3466
    """
    wide = class_logits(logits)
    check_float_tensor("targets", targets)
    if targets.shape != wide.shape:
        raise InvalidValueError(
            f"`targets` must have the shape of the logits, {tuple(wide.shape)}, got {tuple(targets.shape)}."
        )
    weights = _weights_for(wide, class_weights)
    labels = targets if weights is None else targets * weights
    return reduce_losses(-(labels * torch.log_softmax(wide, dim=1)).sum(dim=1), reduction)


@public
def cross_entropy(
    *, logits: Tensor, targets: Tensor, class_weights: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy with integer targets; one logit per sample is a binary model.

    Args:
        logits: ``(n, K)``, ``(n, 1)`` or ``(n,)``, widened to float32 at least.
        targets: int ``(n,)``.
        class_weights: ``(K,)``; the mean is then the weighted mean, as in `torch.nn.functional.cross_entropy`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Examples:
        >>> import torch
        >>> round(cross_entropy(logits=torch.tensor([0.0]), targets=torch.tensor([1])).item(), 4)
        0.6931
    """
    wide, targets = class_logits_and_targets(logits, targets)
    weights = _weights_for(wide, class_weights)
    # No label is special: torch's default would drop -100 from the sum, but not from a mean taken afterwards.
    losses = torch.nn.functional.cross_entropy(wide, targets, weight=weights, reduction="none", ignore_index=NO_LABEL)
    if weights is not None and reduction == "mean":
        return losses.sum() / weights[targets].sum()
    return reduce_losses(losses, reduction)


def _weights_for(logits: Tensor, class_weights: Tensor | None) -> Tensor | None:
    """Class weights, checked, in the dtype of the logits."""
    if class_weights is None:
        return None
    check_tensor("class_weights", class_weights)
    if class_weights.shape != logits.shape[1:]:
        raise InvalidValueError(
            f"`class_weights` must have shape ({logits.shape[1]},), one per class, got {tuple(class_weights.shape)}."
        )
    return class_weights.to(logits.dtype)
