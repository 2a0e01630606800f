"""S-AvUC: the soft accuracy-versus-uncertainty loss of Karandikar et al. 2021."""

import math

import torch
from torch import Tensor

from metacal.functional.arguments import check_inside, check_positive
from metacal.functional.boundary import public
from metacal.functional.inputs import class_logits_and_targets

UNIFORM_SHARE = 1e-5
LEAST_MASS = 1e-5


@public
def soft_avuc(*, logits: Tensor, targets: Tensor, kappa: float = 0.5, temperature: float = 0.1) -> Tensor:
    r"""Asks right predictions to be certain and wrong ones to be uncertain.

    With the entropy H in nats, :math:`e = H / \log K` and
    :math:`q = \sigma((\mathrm{logit}\, e - \mathrm{logit}\, \kappa) / T)`, samples are softly shared among
    right-uncertain (:math:`q \tanh H`), right-certain (:math:`(1 - q)(1 - \tanh H)`), and the same for wrong ones; the
    value is :math:`\log(1 + (AU + IC) / (AC + IU))`. Correctness carries no gradient.

    Args:
        logits: ``(n, K)``, or one logit per sample; see `dece`.
        targets: int ``(n,)``.
        kappa: normalised entropy, in (0, 1), from which a prediction counts as uncertain. Not given in the paper.
        temperature: T, softness of that border. Not given in the paper.

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
