"""Training losses with one value per sample before they are reduced: cross-entropy, label smoothing, focal, margins.

All take logits ``(n, K)``, or one logit per sample, ``(n,)`` or ``(n, 1)``, for a binary model, and widen them to
float32 at least. Targets are int ``(n,)``. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.
"""

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.arguments import (
    check_choice,
    check_float_tensor,
    check_integer,
    check_labels,
    check_not_negative,
    check_positive,
    check_share,
    check_tensor,
)
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits, class_logits_and_targets
from metacal.functional.proper_scores import squared_distances

__all__ = [
    "acls_loss",
    "brier_loss",
    "cross_entropy",
    "dual_focal_loss",
    "flsd_loss",
    "focal_loss",
    "label_smoothing_loss",
    "logit_norm_loss",
    "mbls_loss",
    "smooth_labels",
    "soft_cross_entropy",
]

REDUCTIONS = ("mean", "sum", "none")
NO_LABEL = -(2**31)


def reduce_losses(losses: Tensor, reduction: str) -> Tensor:
    """Reduce losses by mean, sum or not at all."""
    check_choice("reduction", reduction, REDUCTIONS)
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses


@public
def soft_cross_entropy(
    *, logits: Tensor, targets: Tensor, class_weights: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-sum_k w_k s_k log p_k`` for soft labels s, float ``(n, K)``, whose rows need **not** sum to 1.

    The class weights w are ``(K,)``. The mean is still taken over samples, as in
    `torch.nn.functional.cross_entropy` with probabilities.

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
    """Cross-entropy with integer targets.

    With class weights ``(K,)`` the mean is the weighted mean, as in `torch.nn.functional.cross_entropy`.

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


@public
def smooth_labels(*, targets: Tensor, num_classes: int, strength: float | Tensor) -> Tensor:
    """Soft labels ``y_k (1 - s) + s / K``, shape ``(n, K)``.

    Args:
        targets: int ``(n,)``.
        num_classes: K.
        strength: s in [0, 1]: one number, or a tensor that broadcasts to ``(n, 1)`` (differentiable).

    Examples:
        >>> import torch
        >>> smooth_labels(targets=torch.tensor([1]), num_classes=2, strength=0.1).tolist()
        [[0.05000000074505806, 0.949999988079071]]
    """
    check_labels("targets", targets)
    check_integer("num_classes", num_classes, 1)
    if not isinstance(strength, Tensor):
        check_share("strength", strength)
        strength = torch.as_tensor(strength, dtype=torch.get_default_dtype())
    one_hot = torch.nn.functional.one_hot(targets.long(), num_classes).to(strength.dtype)
    return one_hot * (1.0 - strength) + strength / num_classes


@public
def label_smoothing_loss(*, logits: Tensor, targets: Tensor, strength: float = 0.05, reduction: str = "mean") -> Tensor:
    """Cross-entropy with the labels of `smooth_labels`."""
    check_share("strength", strength)
    wide, targets = class_logits_and_targets(logits, targets)
    labels = smooth_labels(targets=targets, num_classes=wide.shape[1], strength=wide.new_tensor(strength))
    return soft_cross_entropy(logits=wide, targets=labels, reduction=reduction)


@public
def focal_loss(*, logits: Tensor, targets: Tensor, gamma: float | Tensor = 3.0, reduction: str = "mean") -> Tensor:
    """``-(1 - p) ** gamma log p`` with p the true class's probability (Lin et al. 2017).

    ``gamma`` >= 0 is one number, or a tensor ``(n,)`` or ``()`` (differentiable).
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
    """``(1 - p) ** gamma`` from log p, without cancellation; for gamma < 1 its infinite slope at p = 1 is set to 0."""
    missing = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)
    if isinstance(gamma, Tensor) and gamma.requires_grad:
        # torch takes the slope of x ** g as a constant 0 where g == 0, which loses its derivative with respect to g.
        return torch.exp(gamma * missing.log())
    weight: Tensor = missing**gamma
    return weight


def signed_focal_weight(log_probs: Tensor, gamma: Tensor) -> Tensor:
    """``(1 - p) ** gamma`` where gamma >= 0, and ``(1 + p) ** -gamma`` (inverse focal) where it is negative."""
    inverse = (1.0 + log_probs.exp()) ** gamma.clamp(max=0.0).neg()
    return torch.where(gamma >= 0.0, focal_weight(log_probs, gamma.clamp(min=0.0)), inverse)


@public
def dual_focal_loss(*, logits: Tensor, targets: Tensor, gamma: float = 5.0, reduction: str = "mean") -> Tensor:
    """``-(1 - p + q) ** gamma log p``, q the largest probability below p, the true class's (Tao et al. 2023).

    Where no probability is below p, q is 0: the loss jumps where p falls below another one, as published.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
        >>> round(dual_focal_loss(logits=logits, targets=torch.tensor([0]), gamma=1.0).item(), 4)  # -.5 log .7
        0.1783
    """
    check_not_negative("gamma", gamma)
    wide, targets = class_logits_and_targets(logits, targets)
    log_probs = torch.log_softmax(wide, dim=1)
    own = log_probs.gather(1, targets.unsqueeze(1))
    below = torch.where(log_probs < own, log_probs.exp(), 0.0).amax(dim=1)
    own = own.squeeze(1)
    weight = (below - torch.expm1(own)).clamp(min=torch.finfo(own.dtype).tiny) ** gamma
    return reduce_losses(-weight * own, reduction)


@public
def mbls_loss(
    *, logits: Tensor, targets: Tensor, margin: float = 10.0, weight: float = 0.1, reduction: str = "mean"
) -> Tensor:
    """Margin-based label smoothing (Liu et al. 2022): cross-entropy and a hinge on the distances of logits.

    The hinge is ``weight * mean_k max(0, max_j z_j - z_k - margin)``. The paper writes a sum over classes; its code,
    whose weight this is, takes the mean.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[30.0, 0.0]]), torch.tensor([0])
        >>> round(mbls_loss(logits=logits, targets=targets).item(), 4)  # 20 beyond the margin, in one of two classes
        1.0
    """
    check_not_negative("margin", margin)
    check_not_negative("weight", weight)
    wide, targets = class_logits_and_targets(logits, targets)
    beyond = torch.relu(wide.amax(dim=1, keepdim=True) - wide - margin).mean(dim=1)
    return reduce_losses(cross_entropy(logits=wide, targets=targets, reduction="none") + weight * beyond, reduction)


@public
def acls_loss(
    *,
    logits: Tensor,
    targets: Tensor,
    margin: float = 10.0,
    weight: float = 0.1,
    top: float = 1.0,
    rest: float = 0.1,
    reduction: str = "mean",
) -> Tensor:
    r"""Adaptive and conditional label smoothing (Park et al. 2023): cross-entropy and two squared hinges on logits.

    With :math:`z_{(1)}` the largest logit of a sample and m the ``margin``, ``weight`` times

    .. math:: top \max(0, z_{(1)} - m)^2 + \frac{rest}{K - 1} \sum_k \max(0, \bar{z}_{(1)} - z_k - m)^2

    is added; the bar holds the largest logit fixed, as the published code does, whose weights these are.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[12.0, 1.0]]), torch.tensor([0])
        >>> round(acls_loss(logits=logits, targets=targets).item(), 4)  # .1 (2 ** 2 + .1 * 1 ** 2)
        0.41
    """
    for name, value in (("margin", margin), ("weight", weight), ("top", top), ("rest", rest)):
        check_not_negative(name, value)
    wide, targets = class_logits_and_targets(logits, targets)
    largest = wide.amax(dim=1, keepdim=True)
    high = torch.relu(largest.squeeze(1) - margin).square()
    low = torch.relu(largest.detach() - wide - margin).square().sum(dim=1) / max(wide.shape[1] - 1, 1)
    plain = cross_entropy(logits=wide, targets=targets, reduction="none")
    return reduce_losses(plain + weight * (top * high + rest * low), reduction)


@public
def logit_norm_loss(*, logits: Tensor, targets: Tensor, temperature: float = 0.04, reduction: str = "mean") -> Tensor:
    """Cross-entropy of ``z / (temperature |z|)`` (Wei et al. 2022): ignores the length of the logits.

    The loss does not see the length of the logits (below .001 they are not stretched further), so nothing fixes it. As
    in the paper, a trained model is used with its logits as they are; its probabilities need a temperature.

    Examples:
        >>> import torch
        >>> logits, targets = torch.tensor([[3.0, 4.0]]), torch.tensor([1])
        >>> bool(logit_norm_loss(logits=logits, targets=targets) == logit_norm_loss(logits=2 * logits, targets=targets))
        True
    """
    check_positive("temperature", temperature)
    wide, targets = class_logits_and_targets(logits, targets)
    # In units of the largest, so that squares neither overflow nor vanish: a length is 1 or more then.
    unit = wide / wide.detach().abs().amax(dim=1, keepdim=True).clamp(min=1e-3)
    normalised = torch.nn.functional.normalize(unit, dim=1, eps=1.0)
    return cross_entropy(logits=normalised / temperature, targets=targets, reduction=reduction)


def target_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each sample's true class, ``(n,)``."""
    wide, targets = class_logits_and_targets(logits, targets)
    return torch.log_softmax(wide, dim=1).gather(1, targets.unsqueeze(1)).squeeze(1)


@public
def brier_loss(*, logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Brier score of ``softmax(logits)`` as a training loss."""
    wide, targets = class_logits_and_targets(logits, targets)
    return reduce_losses(squared_distances(torch.softmax(wide, dim=1), targets, sum_to_one=True), reduction)
