"""Label smoothing: soft labels from hard ones."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_integer, check_labels, check_share
from metacal.functional.boundary import public
from metacal.functional.cross_entropy import soft_cross_entropy
from metacal.functional.inputs import class_logits_and_targets


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
    """Cross-entropy with smoothed labels.

    Args:
        logits: ``(n, K)``, or one logit per sample.
        targets: int ``(n,)``.
        strength: s in [0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Examples:
        >>> import torch
        >>> round(label_smoothing_loss(logits=torch.tensor([[2.0, 0.0]]), targets=torch.tensor([0])).item(), 4)
        0.1769
    """
    check_share("strength", strength)
    wide, targets = class_logits_and_targets(logits, targets)
    labels = smooth_labels(targets=targets, num_classes=wide.shape[1], strength=wide.new_tensor(strength))
    return soft_cross_entropy(logits=wide, targets=labels, reduction=reduction)
