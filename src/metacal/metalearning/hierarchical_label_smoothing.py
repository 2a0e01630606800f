"""Learned label smoothing whose classes share one strength and have to earn their deviations from it (the default)."""

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_not_negative, check_number
from metacal.metalearning.hyperparameter import MAX_STRENGTH, LabelSmoothingHyperparameter

START = 0.05
"""The strength that people choose by hand."""

THRESHOLD = 0.04
"""What base and deviation together have to exceed before a class is smoothed at all."""

SHARE = 0.1
"""Rate of deviations and distribution in units of the base's."""

DECAY = 0.0025
"""Share of all that was learned that is forgotten in each training step."""


class HierarchicalLabelSmoothing(LabelSmoothingHyperparameter, name="hierarchical_smoothing"):
    r"""Soft label of true class c: :math:`y_k (1 - s_c) + s_c\, q_{ck}`.

    The strength :math:`s_c = \max(\mathrm{base} + \mathrm{deviation}_c - \mathrm{threshold}, 0)`, at most 0.5, is
    soft-thresholded: a little smoothing can harm as much as a lot where none is wanted, and noise never lets a learned
    strength rest at exactly 0. Below the threshold the gradient is passed on as if there were none, so that the
    strength can come back. :math:`q_c` is a softmax of free numbers over the wrong classes.
    Everything decays, so that it has to be asked for again and again. Deviations and distribution start at none and
    move at a tenth of the base's rate. Strengths that are learned one by one, each cut off at 0, would turn noise into
    smoothing: what goes up stays, what goes down is cut off.

    Args:
        num_classes: K.
        start: the strength of every class at first, in [0, 0.5].
        threshold: >= 0.
        share: rate of deviations and distribution in units of the base's, >= 0.
        decay: share that is forgotten in each training step, in [0, 1).

    Attributes:
        base: ``()``, in [0, 0.5 + threshold].
        deviation: ``(K,)``.
        affinity: ``(K, K)``, the free numbers; the diagonal is masked where they are used.

    Examples:
        >>> import torch
        >>> smoothing = HierarchicalLabelSmoothing(num_classes=3, start=0.5)
        >>> smoothing.soft_labels(torch.tensor([0])).tolist()
        [[0.5, 0.25, 0.25]]
    """

    def __init__(
        self,
        num_classes: int,
        start: float = START,
        *,
        threshold: float = THRESHOLD,
        share: float = SHARE,
        decay: float = DECAY,
    ) -> None:
        super().__init__(num_classes)
        check_number("start", start, f"in [0, {MAX_STRENGTH}]", holds=lambda x: 0.0 <= x <= MAX_STRENGTH)
        check_not_negative("threshold", threshold)
        check_not_negative("share", share)
        check_number("decay", decay, "in [0, 1)", holds=lambda x: 0.0 <= x < 1.0)
        self.threshold, self.share, self.decay = float(threshold), float(share), float(decay)
        self.base = nn.Parameter(torch.tensor(start + self.threshold))
        self.deviation = nn.Parameter(torch.zeros(num_classes))
        self.affinity = nn.Parameter(torch.zeros(num_classes, num_classes))

    @property
    def strength(self) -> Tensor:
        """``(K,)``: the strength of each class; its gradient is that of base + deviation."""
        free = self.base + self.deviation
        value = (free.detach() - self.threshold).clamp(0.0, MAX_STRENGTH)
        return value + (free - free.detach()) if free.requires_grad else value

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``."""
        rows = classes = torch.arange(self.num_classes, device=labels.device)
        strength: Tensor = self.strength
        affinity: Tensor = self.affinity
        # With few classes, a row for each is less than one for each sample; a gradient would be less exact that way.
        is_looked_up = len(labels) > self.num_classes and not (strength.requires_grad or affinity.requires_grad)
        if not is_looked_up:
            rows, strength, affinity = labels, strength[labels], affinity[labels]
        is_true, strength = rows.unsqueeze(1) == classes, strength.unsqueeze(1)
        wrong = torch.softmax(affinity.masked_fill(is_true, -torch.inf), dim=1)
        soft = torch.where(is_true, 1.0 - strength, strength * wrong)
        return soft[labels] if is_looked_up else soft

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """No more than the strongest smoothing takes."""
        return {"base": (0.0, MAX_STRENGTH + self.threshold), "deviation": (-MAX_STRENGTH, MAX_STRENGTH)}

    def rates(self) -> dict[str, float]:
        """Deviations and distribution move at a share of the base's rate."""
        return {"deviation": self.share, "affinity": self.share}

    def decays(self) -> dict[str, float]:
        """Everything goes back to none."""
        return dict.fromkeys(("base", "deviation", "affinity"), self.decay)

    def summary(self) -> dict[str, Tensor]:
        """Base, and mean, lowest and highest strength."""
        strength = self.strength.detach()
        return {
            "base": self.base.detach(),
            "strength": strength.mean(),
            "strength_min": strength.min(),
            "strength_max": strength.max(),
        }
