"""Learned label smoothing with a strength for each class and a distribution over the wrong classes (the paper's MC)."""

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_choice
from metacal.metalearning.vector_label_smoothing import VectorLabelSmoothing

EPSILON = 1e-6


class NonUniformLabelSmoothing(VectorLabelSmoothing, name="nonuniform_smoothing"):
    r"""Soft label of true class c: :math:`y_k (1 - s_c) + s_c \frac{d_{ck}}{\epsilon + \sum_j d_{cj}}`.

    The distribution has no share for the true class itself, :math:`d_{cc} = 0`.
    While a row of the distribution is all zero, as at the paper's start, its soft label sums to ``1 - s_c``.

    Args:
        num_classes: K.
        initial: where the distribution starts: ``"zero"`` as in the paper, or ``"uniform"``, 1 / (K - 1).

    Attributes:
        strength: ``(K,)``, each in [0, 0.5], starts at 0.
        distribution: ``(K, K)``, >= 0, not normalised; the diagonal is masked where it is used.

    Examples:
        >>> import torch
        >>> smoothing = NonUniformLabelSmoothing(num_classes=3, initial="uniform")
        >>> _ = smoothing.strength.data.fill_(0.5)
        >>> [round(share, 4) for share in smoothing.soft_labels(torch.tensor([0]))[0].tolist()]
        [0.5, 0.25, 0.25]
    """

    def __init__(self, num_classes: int, initial: str = "zero") -> None:
        super().__init__(num_classes)
        check_choice("initial", initial, ("zero", "uniform"))
        start = 1.0 / (num_classes - 1) if initial == "uniform" else 0.0
        self.distribution = nn.Parameter(torch.full((num_classes, num_classes), start))

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``; only the rows that occur are normalised."""
        one_hot = nn.functional.one_hot(labels, self.num_classes).to(self.strength.dtype)
        strength = self.strength[labels].unsqueeze(1)
        wrong = self.distribution[labels] * (1.0 - one_hot)
        return one_hot * (1.0 - strength) + strength * wrong / (EPSILON + wrong.sum(dim=1, keepdim=True))

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Strengths in [0, 0.5], distribution >= 0."""
        return {**super().bounds(), "distribution": (0.0, None)}
