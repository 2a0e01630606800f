"""Closed-form hypergradient of a linear head that is trained by soft-label cross-entropy.

With features h ``(n, d)``, ``p = softmax(z)`` of the logits, and soft labels s ``(n, K)`` whose rows need **not** sum
to 1, the summed loss has the head gradient ``(S p - s)^T h``, S the row sums. It is linear in s, so the gradient of any
later loss with respect to s, through one gradient step on the head, needs no graph: two small products.
"""

from torch import Tensor

from metacal.functional.inputs import class_logits


def logit_gradient(probs: Tensor, soft_labels: Tensor) -> Tensor:
    """``(n, K)``: gradient of the summed soft-label cross-entropy with respect to the logits, ``S p - s``."""
    return soft_labels.sum(dim=1, keepdim=True) * probs - soft_labels


def head_gradient(probs: Tensor, soft_labels: Tensor, features: Tensor, num_outputs: int) -> tuple[Tensor, Tensor]:
    """Gradient of the summed soft-label cross-entropy with respect to weight and bias of a linear head.

    The weight has ``num_outputs`` rows: K, or 1 for a binary head, whose one logit belongs to the last class.
    """
    residuals = logit_gradient(probs, soft_labels)[:, -num_outputs:].to(features.dtype)
    return residuals.T @ features, residuals.sum(dim=0)


def label_hypergradient(probs: Tensor, features: Tensor, weight_grad: Tensor, bias_grad: Tensor | None) -> Tensor:
    """``(n, K)``: gradient with respect to s of ``L(head - (S p - s)^T h)``: a step of size 1 on the summed loss.

    ``weight_grad``, ``(K, d)`` or ``(1, d)`` for a binary head, is the gradient of L at the stepped weight.

    Examples:
        >>> import torch
        >>> probs, features = torch.tensor([[0.5, 0.5]]), torch.tensor([[2.0]])
        >>> label_hypergradient(probs, features, torch.tensor([[1.0], [0.0]]), None).tolist()
        [[1.0, -1.0]]
    """
    along = features @ weight_grad.T
    if bias_grad is not None:
        along = along + bias_grad
    along = class_logits(along)  # a binary head's one logit stands for the pair (0, z)
    return along - (probs * along).sum(dim=1, keepdim=True)
