"""Telling what is out of distribution by the model's own uncertainty: AUROC and FPR95."""

from typing import NamedTuple

import torch
from torch import Tensor

from metacal.errors import InvalidValueError
from metacal.functional.boundary import public


class Detection(NamedTuple):
    """How well a score tells samples from inside the distribution from those outside.

    Attributes:
        auroc: chance that a sample from inside scores higher than one from outside; ties count half.
        fpr95: share of the outside taken for inside by the threshold that keeps 95 % of the inside.
    """

    auroc: float
    fpr95: float


def max_prob_scores(probs: Tensor) -> Tensor:
    """The top probability of each sample: high is inside."""
    return probs.amax(dim=1)


def entropy_scores(probs: Tensor) -> Tensor:
    """Minus the entropy of each sample's probabilities: high is inside."""
    products: Tensor = torch.special.xlogy(probs, probs)
    return products.sum(dim=1)


@public
def detection(inside: Tensor, outside: Tensor) -> Detection:
    """Compare scores ``(n,)`` of samples inside with scores ``(m,)`` of samples outside.

    Examples:
        >>> import torch
        >>> detection(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.75, 0.2]))
        Detection(auroc=0.8333333333333334, fpr95=0.5)
    """
    if not len(inside) or not len(outside):
        raise InvalidValueError(f"`inside` and `outside` must hold samples, got {len(inside)} and {len(outside)}.")
    inside, outside = inside.double(), outside.double()
    for name, scores in (("inside", inside), ("outside", outside)):
        if bool(scores.isnan().any()):
            raise InvalidValueError(f"`{name}` must hold numbers, got nan.")
    ordered = outside.sort().values
    below = torch.searchsorted(ordered, inside.contiguous())
    not_above = torch.searchsorted(ordered, inside.contiguous(), right=True)
    auroc = (below + not_above).double().mean().item() / (2 * len(outside))
    keep = -(-19 * len(inside) // 20)  # 95 %, rounded up, in whole numbers
    threshold = inside.sort(descending=True).values[keep - 1]
    return Detection(auroc, (outside >= threshold).double().mean().item())


@public
def ood_figures(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """AUROC and FPR95 of the top probability and of the entropy, from probabilities ``(n, K)`` and ``(m, K)``."""
    figures: dict[str, float] = {}
    for name, score in (("max_prob", max_prob_scores), ("entropy", entropy_scores)):
        found = detection(score(inside), score(outside))
        figures |= {f"ood_auroc_{name}": found.auroc, f"ood_fpr95_{name}": found.fpr95}
    return figures
