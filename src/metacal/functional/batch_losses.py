"""Differentiable calibration losses of a whole batch: DECE, SB-ECE, S-AvUC, MMCE, MDCA and smooth ECE.

All take logits ``(n, K)``, or ``(n,)`` or ``(n, 1)`` for a binary model with one logit, of any float dtype: narrower
ones are widened to float32. Targets are int ``(n,)``. Shapes and dtypes are checked; values are not, so that a GPU is
never made to wait.
"""

import math

import torch
from torch import Tensor

from metacal.functional.arguments import check_choice, check_inside, check_num_bins, check_positive
from metacal.functional.boundary import public
from metacal.functional.calibration_errors import smooth_error
from metacal.functional.inputs import class_logits_and_targets

__all__ = ["dece", "mdca", "mmce", "mmce_weighted", "smooth_ece", "soft_avuc", "soft_binned_ece"]

SMOOTHING = 1e-6
"""Added to every bin membership of DECE, as published: keeps the gradient of a far-away bin from being exactly 0."""

GRADIENTS = ("full", "confidence")
LEAST_MASS = 1e-5
UNIFORM_SHARE = 1e-5
KERNEL_WIDTH = 0.4


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

    The second form is what is computed. Only the true class's rank is needed, so there is no n x K x K tensor. In
    bfloat16 the soft rank would be noise.

    Args:
        logits: see the top of this file, as for ``targets``.
        targets: int ``(n,)``.
        num_bins: M.
        tau_a: sharpness of the soft rank; larger is closer to hard accuracy.
        tau_b: temperature of the soft bins; smaller is closer to hard bins.
        gradient: ``"full"``, as published; ``"confidence"``: soft accuracies and memberships are held fixed, so that it
            says which confidences are too high or too low and nothing else. The value is the same. Sharp as they are,
            the other two parts are mostly noise in a batch (docs/limitations.md).

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


@public
def soft_binned_ece(
    *, logits: Tensor, targets: Tensor, num_bins: int = 15, temperature: float = 0.01, power: float = 2.0
) -> Tensor:
    r"""Soft-binned ECE of a batch: soft bins, hard correctness.

    Memberships :math:`u_{im} = \mathrm{softmax}_m(-(c_i - \xi_m)^2 / T)` around centres
    :math:`\xi_m = (m - \tfrac12) / M`; :math:`A_m, C_m` the u-weighted means of correctness (which carries no gradient)
    and confidence; the value is :math:`(\sum_m w_m |A_m - C_m|^p)^{1/p}` with :math:`w_m = \sum_i u_{im} / n`.
    ``num_bins`` is M, ``temperature`` T and ``power`` p: 2 for training, 1 to compare with ECE.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]])
        >>> round(soft_binned_ece(logits=logits, targets=torch.tensor([0, 1]), power=1).item(), 3)
        0.482
    """
    check_num_bins(num_bins)
    check_positive("temperature", temperature)
    check_positive("power", power)
    confidences, correct = _confidences_and_correct(logits, targets)
    centres = (torch.arange(num_bins, dtype=confidences.dtype, device=confidences.device) + 0.5) / num_bins
    members = torch.softmax(-(confidences.unsqueeze(1) - centres).square() / temperature, dim=1)
    masses = members.sum(dim=0)
    gaps = (members * (correct - confidences).unsqueeze(1)).sum(dim=0) / masses.clamp(min=LEAST_MASS)
    # Relative to the largest gap, so that a high power does not underflow; a power below 1 has no slope to give at 0.
    largest = gaps.detach().abs().amax().clamp(min=torch.finfo(gaps.dtype).tiny)
    sizes = torch.where(gaps == 0.0, 0.0, (torch.where(gaps == 0.0, 1.0, gaps).abs() / largest) ** power)
    mean = (masses / len(correct) * sizes).sum()
    # A root has an infinite slope at 0; there, the error is at its least and its gradient is 0.
    safe = torch.where(mean > 0.0, mean, 1.0)
    return torch.where(mean > 0.0, largest * safe ** (1.0 / power), 0.0 * mean)


@public
def soft_avuc(*, logits: Tensor, targets: Tensor, kappa: float = 0.5, temperature: float = 0.1) -> Tensor:
    r"""Penalise correct predictions that are uncertain and wrong ones that are certain.

    With the entropy H in nats, :math:`e = H / \log K` and
    :math:`q = \sigma((\mathrm{logit}\, e - \mathrm{logit}\, \kappa) / T)`, samples are softly shared among
    right-uncertain (:math:`q \tanh H`), right-certain (:math:`(1 - q)(1 - \tanh H)`), and the same for wrong ones; the
    value is :math:`\log(1 + (AU + IC) / (AC + IU))`. Correctness carries no gradient. ``kappa``, in (0, 1), is the
    normalised entropy from which a prediction counts as uncertain, ``temperature`` T the softness of that border; the
    paper gives neither.

    Examples:
        >>> import torch
        >>> sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.1, 0.0]])
        >>> right = torch.tensor([0])
        >>> bool(soft_avuc(logits=sure, targets=right) < soft_avuc(logits=unsure, targets=right))
        True
    """
    check_positive("temperature", temperature)
    check_inside("kappa", kappa)
    wide, targets = class_logits_and_targets(logits, targets)
    num_classes = wide.shape[1]
    probs = torch.softmax(wide, dim=1)
    correct = probs.argmax(dim=1) == targets
    mixed = (1.0 - UNIFORM_SHARE) * probs + UNIFORM_SHARE / num_classes
    entropies = -(mixed * mixed.log()).sum(dim=1)
    border = math.log(kappa / (1.0 - kappa))
    uncertain = torch.sigmoid((torch.logit(entropies / math.log(num_classes), eps=1e-6) - border) / temperature)
    as_uncertain = uncertain * torch.tanh(entropies)
    as_certain = (1.0 - uncertain) * (1.0 - torch.tanh(entropies))
    disagreeing = torch.where(correct, as_uncertain, as_certain).sum()
    agreeing = torch.where(correct, as_certain, as_uncertain).sum()
    return torch.log1p(disagreeing / agreeing.clamp(min=LEAST_MASS))


@public
def mmce(*, logits: Tensor, targets: Tensor) -> Tensor:
    r"""Kernel calibration error of a batch, squared form: :math:`\frac1{n^2} \sum_{ij} r_i r_j k(c_i, c_j)`.

    :math:`r_i` is correctness minus confidence, :math:`k(c, c') = \exp(-|c - c'| / 0.4)`. Memory is n x n.

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
    r"""MMCE that gives correct and wrong predictions equal weight, as published.

    With m right and w wrong predictions, the root of

    .. math:: \sum_{right} \frac{(1 - c_i)(1 - c_j) k}{m^4} + \sum_{wrong} \frac{c_i c_j k}{w^4}
              - 2 \sum_{mixed} \frac{(1 - c_i) c_j k}{m^2 w^2}.

    The published code divides each mean over pairs by the number of pairs once more; so do we, since its weight of 2 in
    the paper's runs belongs to that scale. Without right or without wrong predictions the value is 0.
    """
    confidences, correct = _confidences_and_correct(logits, targets)
    rights, wrongs = correct.sum(), (1.0 - correct).sum()
    # One quadratic form holds all three sums, if each sample's residual is divided by its group's size squared.
    sizes = torch.where(correct > 0, rights, wrongs)
    residuals = (correct - confidences) / sizes.square()
    square = (residuals * (_kernel(confidences) * residuals).sum(dim=1)).sum()
    is_defined = (rights > 0) & (wrongs > 0) & (square > 0)
    return torch.where(is_defined, torch.where(is_defined, square, 1.0).sqrt(), 0.0 * square)


@public
def mdca(*, logits: Tensor, targets: Tensor) -> Tensor:
    r"""Difference of confidence and frequency for each class (Hebbalaguppe et al. 2022), to be added to a loss.

    :math:`\frac1K \sum_k \left|\frac1n \sum_i p_{ik} - \frac1n \sum_i [y_i = k]\right|`.

    Examples:
        >>> import torch
        >>> round(mdca(logits=torch.zeros(4, 2), targets=torch.tensor([0, 0, 0, 1])).item(), 4)
        0.25
    """
    wide, targets = class_logits_and_targets(logits, targets)
    frequencies = torch.nn.functional.one_hot(targets, wide.shape[1]).to(wide.dtype).mean(dim=0)
    return (torch.softmax(wide, dim=1).mean(dim=0) - frequencies).abs().mean()


@public
def smooth_ece(*, logits: Tensor, targets: Tensor) -> Tensor:
    """Differentiable `smooth_calibration_error` of a batch; the gradient includes the bandwidth.

    Correctness carries no gradient.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]], requires_grad=True)
        >>> smooth_ece(logits=logits, targets=torch.tensor([0, 1])).backward()  # confidence 0.98, accuracy 0.5
        >>> bool((logits.grad[:, 0] > 0).all())
        True
    """
    confidences, correct = _confidences_and_correct(logits, targets)
    return smooth_error(confidences, correct).to(confidences.dtype)


def _confidences_and_correct(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    wide, targets = class_logits_and_targets(logits, targets)
    confidences, predictions = torch.softmax(wide, dim=1).max(dim=1)
    return confidences, (predictions == targets).to(wide.dtype)


def _kernel(confidences: Tensor) -> Tensor:
    return torch.exp(-(confidences.unsqueeze(0) - confidences.unsqueeze(1)).abs() / KERNEL_WIDTH)
