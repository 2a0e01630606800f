"""`LogitPenalty`: keeps logits small while the model over-fits, and fades with the learning rate."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from metacal.functional.arguments import check_integer, check_not_negative, check_number, check_positive
from metacal.metalearning.hyperparameter import Bounds, Hyperparameter, InnerLoss, Phase

MASKED = -1e3
"""A logit at or below it, -inf too, stands for a class that cannot be."""

LARGEST_CHANGE = 3.0
"""Most that the logarithm of a strength is moved from its start."""


class LogitPenalty(Hyperparameter, name="logit_penalty"):
    r"""Adds :math:`s_c\, g\, r^a\, \|z - \bar z\|^2` to the loss of a sample of class c (the default).

    z are its logits, :math:`\bar z` their mean, g how far the model over-fits (1 - training loss / held-out loss, at
    least 0), r the learning rate relative to its highest value so far and a = 2. Large logits are how a network learns
    its training samples by heart: the penalty keeps them small, and errors fall. A network that does not over-fit is
    left alone. When the learning rate drops, the penalty lets go: the logits spread out as cross-entropy wants them,
    and the wrong classes are ranked again, which label smoothing to the end prevents. A temperature fixes the rest.

    The strength :math:`s_c = \mathrm{start} \cdot \exp(\mathrm{base} + \mathrm{deviation}_c)` is learned; base and
    deviations start at 0 and decay, so that a strength other than the start has to be asked for again and again.
    Deviations move at a share of the base's rate; by default all classes have one strength.

    Args:
        num_classes: K.
        start: the strength of every class at first, > 0.
        annealing: a, >= 0; 0 keeps the penalty to the end.
        rate: of the base in units of the outer step's, > 0: the base is a logarithm and may move further.
        share: rate of the deviations in units of the base's, >= 0.
        decay: share of base and deviations that is forgotten in each training step, in [0, 1).

    Attributes:
        base: ``()``, in [-3, 3].
        deviation: ``(K,)``, each in [-3, 3].

    Examples:
        >>> import torch
        >>> penalty = LogitPenalty(num_classes=3, start=0.1)
        >>> inner = penalty(InnerLoss.plain(torch.tensor([0]), 3, Phase(relative_lr=0.5)))
        >>> round(inner.logit_penalty(torch.tensor([[2.0, 1.0, 0.0]])).item(), 4)
        0.05
    """

    num_classes: int

    def __init__(
        self,
        num_classes: int,
        start: float = 0.1,
        *,
        annealing: float = 2.0,
        rate: float = 3.0,
        share: float = 0.0,
        decay: float = 0.0025,
    ) -> None:
        super().__init__()
        check_integer("num_classes", num_classes, 2)
        check_positive("start", start)
        check_not_negative("annealing", annealing)
        check_positive("rate", rate)
        check_not_negative("share", share)
        check_number("decay", decay, "in [0, 1)", holds=lambda x: 0.0 <= x < 1.0)
        self.num_classes, self.start, self.annealing = num_classes, float(start), float(annealing)
        self.rate, self.share, self.decay = float(rate), float(share), float(decay)
        self.base = nn.Parameter(torch.zeros(()))
        self.deviation = nn.Parameter(torch.zeros(num_classes))

    @property
    def strength(self) -> Tensor:
        """``(K,)``: the strength of each class at the highest learning rate."""
        return self.start * (self.base + self.deviation).exp()

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Add the penalty on logits."""
        strength = self.strength[inner.labels] * self.pace(inner.phase)
        return inner.with_logit_penalty(lambda logits: strength * centred_square(logits))

    def pace(self, phase: Phase) -> Tensor | float:
        """The current factor of the strengths."""
        return phase.overfitting * math.pow(phase.relative_lr, self.annealing)

    def bounds(self) -> Bounds:
        """Allow at most a factor of 20 from the initial strength."""
        return dict.fromkeys(("base", "deviation"), (-LARGEST_CHANGE, LARGEST_CHANGE))

    def rates(self) -> dict[str, float]:
        """A log-strength moves faster than a strength; deviations move at a fraction of the base's rate."""
        return {"base": self.rate, "deviation": self.rate * self.share}

    def decays(self) -> dict[str, float]:
        """All parameters decay to their initial values."""
        return dict.fromkeys(("base", "deviation"), self.decay)

    def export(self) -> dict[str, Any]:
        """Return the parameters, and the strength of every class."""
        return {**super().export(), "strength": self.strength.detach().tolist()}

    def summary(self) -> dict[str, Tensor]:
        """Mean, lowest and highest strength."""
        strength = self.strength.detach()
        return {"strength": strength.mean(), "strength_min": strength.min(), "strength_max": strength.max()}


def centred_square(logits: Tensor) -> Tensor:
    """``(n,)``: squared norm of each row's centred logits; masked classes are excluded."""
    is_kept = logits > MASKED
    kept = torch.where(is_kept, logits, 0.0)
    mean = kept.sum(dim=-1, keepdim=True) / is_kept.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(is_kept, kept - mean, 0.0).square().sum(dim=-1)
