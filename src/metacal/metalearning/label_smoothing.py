"""Learned label smoothing: one strength, one for each class, and how it is spread over the wrong classes."""

from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_choice, check_integer, check_not_negative, check_number
from metacal.functional.sample_losses import smooth_labels
from metacal.metalearning.hyperparameter import Bounds, Hyperparameter, InnerLoss

MAX_STRENGTH = 0.5
"""Most that label smoothing may take from the true class."""

EPSILON = 1e-6
"""Keeps an all-zero distribution from being divided by 0, as in the published code."""


class LabelSmoothingHyperparameter(Hyperparameter):
    """Base of hyper-parameters that produce soft labels of K classes; a subclass computes the rows."""

    num_classes: int

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        self.num_classes = num_classes

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``: the soft label of each entry of ``labels``."""
        raise NotImplementedError(f"{type(self).__name__} must define soft_labels(labels).")

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Replace the targets; targets that are already soft are mixed."""
        if not inner.targets.is_floating_point():
            return inner.with_targets(self.soft_labels(inner.targets))
        classes = torch.arange(self.num_classes, device=inner.targets.device)
        with torch.autocast(inner.targets.device.type, enabled=False):
            return inner.with_targets(inner.targets @ self.soft_labels(classes))

    def export(self) -> dict[str, Any]:
        """Return the parameters, and the soft label of every class as a row."""
        classes = torch.arange(self.num_classes, device=next(self.parameters()).device)
        with torch.no_grad():
            return {**super().export(), "soft_labels": self.soft_labels(classes).tolist()}


class ScalarLabelSmoothing(LabelSmoothingHyperparameter, name="scalar_smoothing"):
    """Soft label ``y_k (1 - s) + s / K`` with one s for all classes (MC-S).

    Attributes:
        strength: ``()``, s in [0, 0.5], starts at 0.

    Examples:
        >>> import torch
        >>> smoothing = ScalarLabelSmoothing(num_classes=2)
        >>> _ = smoothing.strength.data.fill_(0.5)
        >>> smoothing.soft_labels(torch.tensor([1])).tolist()
        [[0.25, 0.75]]
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.strength = nn.Parameter(torch.zeros(()))

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``: the soft label of each entry of ``labels``."""
        return smooth_labels(targets=labels, num_classes=self.num_classes, strength=self.strength)

    def bounds(self) -> Bounds:
        """Strength in [0, 0.5]."""
        return {"strength": (0.0, MAX_STRENGTH)}


class VectorLabelSmoothing(ScalarLabelSmoothing, name="vector_smoothing"):
    """Soft label ``y_k (1 - s_c) + s_c / K`` with a strength for each true class c (MC-V).

    Attributes:
        strength: ``(K,)``, each in [0, 0.5], starts at 0.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.strength = nn.Parameter(torch.zeros(num_classes))

    def soft_labels(self, labels: Tensor) -> Tensor:
        """``(n, K)``: the soft label of each entry of ``labels``."""
        strength = self.strength[labels].unsqueeze(1)
        return smooth_labels(targets=labels, num_classes=self.num_classes, strength=strength)

    def summary(self) -> dict[str, Tensor]:
        """Mean, lowest and highest strength."""
        return _range_of(self.strength)


class NonUniformLabelSmoothing(VectorLabelSmoothing, name="nonuniform_smoothing"):
    r"""Soft label of true class c: :math:`y_k (1 - s_c) + s_c \frac{d_{ck}}{\epsilon + \sum_j d_{cj}}` (MC).

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

    def bounds(self) -> Bounds:
        """Strengths in [0, 0.5], distribution >= 0."""
        return {**super().bounds(), "distribution": (0.0, None)}


class HierarchicalLabelSmoothing(LabelSmoothingHyperparameter, name="hierarchical_smoothing"):
    r"""Soft label of true class c: :math:`y_k (1 - s_c) + s_c\, q_{ck}`.

    The strength :math:`s_c = \max(\mathrm{base} + \mathrm{deviation}_c - \mathrm{threshold}, 0)`, at most 0.5, is
    soft-thresholded, so that it can rest at exactly 0: a little smoothing can harm as much as a lot. Below the
    threshold the gradient is passed on, so that the strength can come back. :math:`q_c` is a softmax of free numbers
    over the wrong classes. Deviations and distribution start at none and move at a tenth of the base's rate; everything
    decays. Independent strengths, each cut off at 0, would turn noise into smoothing.

    Args:
        num_classes: K.
        start: the strength of every class at first, in [0, 0.5]; .05 is what people choose by hand.
        threshold: what base and deviation together have to exceed before a class is smoothed at all, >= 0.
        share: rate of deviations and distribution in units of the base's, >= 0.
        decay: share of all that was learned that is forgotten in each training step, in [0, 1).

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
        start: float = 0.05,
        *,
        threshold: float = 0.04,
        share: float = 0.1,
        decay: float = 0.0025,
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
        """``(n, K)``: the soft label of each entry of ``labels``."""
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

    def bounds(self) -> Bounds:
        """Allow at most the strongest smoothing."""
        return {"base": (0.0, MAX_STRENGTH + self.threshold), "deviation": (-MAX_STRENGTH, MAX_STRENGTH)}

    def rates(self) -> dict[str, float]:
        """Deviations and distribution move at a fraction of the base's rate."""
        return {"deviation": self.share, "affinity": self.share}

    def decays(self) -> dict[str, float]:
        """All parameters decay to 0."""
        return dict.fromkeys(("base", "deviation", "affinity"), self.decay)

    def summary(self) -> dict[str, Tensor]:
        """Base, and mean, lowest and highest strength."""
        return {"base": self.base.detach(), **_range_of(self.strength)}


def _range_of(strength: Tensor) -> dict[str, Tensor]:
    strength = strength.detach()
    return {"strength": strength.mean(), "strength_min": strength.min(), "strength_max": strength.max()}
