"""Learned label smoothing whose classes share one strength and have to earn their deviations from it (the default)."""

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_number
from metacal.metalearning.hyperparameter import MAX_STRENGTH, LabelSmoothingHyperparameter

START = 0.05
"""The strength that people choose by hand."""

SHARE = 0.1
"""Rate of deviations and distribution in units of the base strength's."""

DECAY = 0.0025
"""Share of deviations and distribution that is forgotten in each training step."""


class HierarchicalLabelSmoothing(LabelSmoothingHyperparameter):
    r"""Soft label of true class c: :math:`y_k (1 - s_c) + s_c\, q_{ck}`.

    The strength :math:`s_c = \mathrm{base} + \mathrm{deviation}_c` is kept in [0, 0.5], and :math:`q_c` is a softmax of
    free numbers over the wrong classes.
    Deviations and distribution start at none, move at a tenth of the base's rate and decay, so that they have to be
    asked for again and again. Strengths that are learned one by one, each cut off at 0, turn noise into smoothing:
    what goes up stays, what goes down is cut off.

    Args:
        num_classes: K.
        start: where the base strength starts, in [0, 0.5].

    Attributes:
        base: ``()``, in [0, 0.5].
        deviation: ``(K,)``.
        affinity: ``(K, K)``, the free numbers; the diagonal is masked where they are used.

    Examples:
        >>> import torch
        >>> smoothing = HierarchicalLabelSmoothing(num_classes=3, start=0.5)
        >>> smoothing.soft_labels(torch.tensor([0])).tolist()
        [[0.5, 0.25, 0.25]]
    """

    def __init__(self, num_classes: int, start: float = START) -> None:
        super().__init__(num_classes)
        check_number("start", start, f"in [0, {MAX_STRENGTH}]", holds=lambda x: 0.0 <= x <= MAX_STRENGTH)
        self.base = nn.Parameter(torch.tensor(float(start)))
        self.deviation = nn.Parameter(torch.zeros(num_classes))
        self.affinity = nn.Parameter(torch.zeros(num_classes, num_classes))

    @property
    def strength(self) -> Tensor:
        """``(K,)``: the strength of each class."""
        return (self.base + self.deviation).clamp(0.0, MAX_STRENGTH)

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``."""
        one_hot = nn.functional.one_hot(labels, self.num_classes)
        strength = self.strength[labels].unsqueeze(1)
        wrong = torch.softmax(self.affinity[labels].masked_fill(one_hot == 1, -torch.inf), dim=1)
        return one_hot * (1.0 - strength) + strength * wrong

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Base in [0, 0.5]; no deviation can do more than the whole range."""
        return {"base": (0.0, MAX_STRENGTH), "deviation": (-MAX_STRENGTH, MAX_STRENGTH)}

    def rates(self) -> dict[str, float]:
        """Deviations and distribution move at a tenth of the base's rate."""
        return {"deviation": SHARE, "affinity": SHARE}

    def decays(self) -> dict[str, float]:
        """Deviations and distribution go back to none."""
        return {"deviation": DECAY, "affinity": DECAY}

    def summary(self) -> dict[str, Tensor]:
        """Base, and mean, lowest and highest strength."""
        strength = self.strength.detach()
        return {
            "base": self.base.detach(),
            "strength": strength.mean(),
            "strength_min": strength.min(),
            "strength_max": strength.max(),
        }
