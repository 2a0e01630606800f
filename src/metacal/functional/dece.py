"""DECE: the differentiable expected calibration error of the paper, in memory linear in the number of classes."""

import torch
from torch import Tensor

from metacal.functional.arguments import check_choice, check_num_bins, check_positive
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets

SMOOTHING = 1e-6
"""Added to every bin membership, as published: keeps the gradient of a far-away bin from being exactly zero."""
GRADIENTS = ("full", "confidence")


@public
def dece(
    *,
    logits: Tensor,
    targets: Tensor,
    num_bins: int = 15,
    tau_a: float = 100.0,
    tau_b: float = 0.01,
    gradient: str = "full",
) -> Tensor:
    r"""Differentiable ECE of a batch (Bohdal et al. 2023).

    With soft bin memberships :math:`o_m(x_i)`, soft accuracies :math:`a_i` and confidences :math:`\hat p_i`,

    .. math:: \mathrm{DECE} = \sum_m \frac{\sum_i o_m(x_i)}{n} \left|\mathrm{acc}(B_m) - \mathrm{conf}(B_m)\right|
              = \frac1n \sum_m \Big|\sum_i o_m(x_i) (a_i - \hat p_i)\Big|.

    The second form is what is computed. Only the true class's rank is needed, so there is no n x K x K tensor. Inputs
    narrower than float32 are widened first: in bfloat16 the soft rank is noise.

    Args:
        logits: ``(n, K)``, or ``(n,)`` or ``(n, 1)`` for a binary model with one logit. Any float dtype.
        targets: int ``(n,)``. Shapes and dtypes are checked; values are not, so that a GPU is never made to wait.
        num_bins: M.
        tau_a: sharpness of the soft rank; larger is closer to hard accuracy.
        tau_b: temperature of the soft bins; smaller is closer to hard bins.
        gradient: ``"full"``, as published; ``"confidence"``: soft accuracies and memberships are held fixed, so that it
            says which confidences are too high or too low and nothing else. The value is the same. Sharp as they are,
            the other two parts are mostly noise in a batch (docs/design/outer-step.md).

    Returns:
        Scalar of the (widened) dtype of the logits.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]], requires_grad=True)
        >>> value = dece(logits=logits, targets=torch.tensor([0, 1]))  # confidence 0.98, accuracy 0.5
        >>> value.backward()
        >>> round(value.item(), 2), bool((logits.grad[:, 0] > 0).all())
        (0.48, True)
    """
    check_num_bins(num_bins)
    check_positive("tau_a", tau_a)
    check_positive("tau_b", tau_b)
    check_choice("gradient", gradient, GRADIENTS)
    wide, targets = class_logits_and_targets(logits, targets)
    probs = torch.softmax(wide, dim=1)
    confidences = probs.amax(dim=1)
    # One maximum for both of its uses: a second one adds up their gradients in another order.
    held, held_confidences = (probs, confidences) if gradient == "full" else (probs.detach(), confidences.detach())
    accuracies = soft_accuracies(held, targets, tau_a)
    members = soft_bin_memberships(held_confidences, num_bins, tau_b) + SMOOTHING
    return (members * (accuracies - confidences).unsqueeze(1)).sum(dim=0).abs().sum() / len(targets)


def soft_accuracies(probs: Tensor, targets: Tensor, tau_a: float) -> Tensor:
    r"""``(n,)`` in [0, 1]: :math:`\max(0, 2 - R_i)` with the all-pairs soft rank :math:`R_i` of the true class.

    :math:`R_i = \tfrac12 + \sum_j \sigma(\tau_a (p_{ij} - p_{i y_i}))`, whose own term adds the other half.
    """
    at_target = probs.gather(1, targets.unsqueeze(1))
    ranks = 0.5 + torch.sigmoid(tau_a * (probs - at_target)).sum(dim=1)
    return torch.relu(2.0 - ranks)


def soft_bin_memberships(confidences: Tensor, num_bins: int, tau_b: float) -> Tensor:
    """``(n, M)`` rows that sum to 1: a softmax over bins whose logits cross at the edges ``m / M``."""
    slopes = torch.arange(1, num_bins + 1, dtype=confidences.dtype, device=confidences.device)
    # Minus the running sum of the cut points 0, 1/M, 2/M, ...: neighbours are equal exactly at the edge between them.
    offsets = -(slopes - 1.0) * slopes / (2.0 * num_bins)
    return torch.softmax((confidences.unsqueeze(1) * slopes + offsets) / tau_b, dim=1)
