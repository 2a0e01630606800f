"""Focal loss and its sample-dependent form FLSD-53."""

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import check_not_negative
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets
from metacal.functional.reduction import reduce_losses


@public
def focal_loss(*, logits: Tensor, targets: Tensor, gamma: float | Tensor = 3.0, reduction: str = "mean") -> Tensor:
    """``-(1 - p) ** gamma log p`` with p the true class's probability (Lin et al. 2017).

    Args:
        logits: ``(n, K)``, or one logit per sample.
        targets: int ``(n,)``.
        gamma: >= 0; one number, or a tensor ``(n,)`` or ``()`` (differentiable).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Examples:
        >>> import torch
        >>> round(focal_loss(logits=torch.zeros(1, 2), targets=torch.tensor([0]), gamma=2.0).item(), 4)
        0.1733
    """
    if not isinstance(gamma, Tensor):
        check_not_negative("gamma", gamma)
    log_probs = target_log_probs(logits, targets)
    if isinstance(gamma, Tensor) and gamma.shape not in ((), log_probs.shape):
        raise InvalidValueError(
            f"`gamma` must have shape () or {tuple(log_probs.shape)}, one per sample, got {tuple(gamma.shape)}."
        )
    return reduce_losses(-focal_weight(log_probs, gamma) * log_probs, reduction)


@public
def flsd_loss(*, logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """FLSD-53 (Mukhoti et al. 2020): focal loss with gamma 5 where the true class has p < 0.2, else 3.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 0])  # p = 0.95 and 0.05
        >>> threes = focal_loss(logits=logits, targets=targets, gamma=3.0, reduction="none")
        >>> (flsd_loss(logits=logits, targets=targets, reduction="none") == threes).tolist()
        [True, False]
    """
    log_probs = target_log_probs(logits, targets).detach()
    gamma = torch.where(log_probs.exp() < 0.2, 5.0, 3.0)
    return focal_loss(logits=logits, targets=targets, gamma=gamma, reduction=reduction)


def focal_weight(log_probs: Tensor, gamma: float | Tensor) -> Tensor:
    """``(1 - p) ** gamma`` from log p, without cancellation; its infinite slope at p = 1 (gamma < 1) is left out."""
    missing = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)
    if isinstance(gamma, Tensor) and gamma.requires_grad:
        # torch takes the slope of x ** g as a constant 0 where g == 0, which loses its derivative with respect to g.
        return torch.exp(gamma * missing.log())
    weight: Tensor = missing**gamma
    return weight


def target_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each sample's true class, ``(n,)``."""
    wide, targets = class_logits_and_targets(logits, targets)
    return torch.log_softmax(wide, dim=1).gather(1, targets.unsqueeze(1)).squeeze(1)
