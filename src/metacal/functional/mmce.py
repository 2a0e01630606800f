"""MMCE: the maximum mean calibration error of Kumar et al. 2018, plain and weighted."""

import torch
from torch import Tensor

from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets

KERNEL_WIDTH = 0.4


@public
def mmce(*, logits: Tensor, targets: Tensor) -> Tensor:
    r"""Kernel calibration error of a batch, squared form: :math:`\frac1{n^2} \sum_{ij} r_i r_j k(c_i, c_j)`.

    :math:`r_i` is correctness minus confidence, :math:`k(c, c') = \exp(-|c - c'| / 0.4)`. Memory is n x n.

    Args:
        logits: ``(n, K)``, or one logit per sample; see `dece`.
        targets: int ``(n,)``.

    Examples:
        >>> import torch
        >>> round(mmce(logits=torch.tensor([[4.0, 0.0], [4.0, 0.0]]), targets=torch.tensor([0, 1])).item(), 3)
        0.232
    """
    confidences, correct = _confidences_and_correct(logits, targets)
    residuals = correct - confidences
    return (residuals * (_kernel(confidences) * residuals).sum(dim=1)).sum() / len(residuals) ** 2


@public
def mmce_weighted(*, logits: Tensor, targets: Tensor) -> Tensor:
    r"""MMCE in which right and wrong predictions weigh the same however many there are of each, as published.

    With m right and w wrong predictions, the root of

    .. math:: \sum_{right} \frac{(1 - c_i)(1 - c_j) k}{m^4} + \sum_{wrong} \frac{c_i c_j k}{w^4}
              - 2 \sum_{mixed} \frac{(1 - c_i) c_j k}{m^2 w^2}.

    The published code divides each mean over pairs by the number of pairs once more; so do we, since its weight of 2 in
    the paper's runs belongs to that scale. Without right or without wrong predictions the value is 0.

    Args:
        logits: ``(n, K)``, or one logit per sample; see `dece`.
        targets: int ``(n,)``.

    Examples:
        >>> import torch
        >>> round(mmce_weighted(logits=torch.tensor([[4.0, 0.0], [4.0, 0.0]]), targets=torch.tensor([0, 1])).item(), 3)
        0.964
    """
    confidences, correct = _confidences_and_correct(logits, targets)
    rights, wrongs = correct.sum(), (1.0 - correct).sum()
    # One quadratic form holds all three sums, if each sample's residual is divided by its group's size squared.
    sizes = torch.where(correct > 0, rights, wrongs)
    residuals = (correct - confidences) / sizes.square()
    square = (residuals * (_kernel(confidences) * residuals).sum(dim=1)).sum()
    is_defined = (rights > 0) & (wrongs > 0) & (square > 0)
    return torch.where(is_defined, torch.where(is_defined, square, 1.0).sqrt(), 0.0 * square)


def _confidences_and_correct(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    wide, targets = class_logits_and_targets(logits, targets)
    confidences, predictions = torch.softmax(wide, dim=1).max(dim=1)
    return confidences, (predictions == targets).to(wide.dtype)


def _kernel(confidences: Tensor) -> Tensor:
    return torch.exp(-(confidences.unsqueeze(0) - confidences.unsqueeze(1)).abs() / KERNEL_WIDTH)
