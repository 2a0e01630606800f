"""The methods that are compared: baselines, and candidates for the default that differ from a centre in one respect."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from metacal import PAPER, HierarchicalLabelSmoothing, LogitPenalty, NonUniformLabelSmoothing, OuterStep
from metacal.losses import CrossEntropyLoss, DECELoss, FocalLoss, LabelSmoothingLoss, Loss
from metacal.metalearning.hyperparameter import Phase

BASELINES: dict[str, Loss] = {"ce": CrossEntropyLoss(), "ls": LabelSmoothingLoss(0.05), "fl3": FocalLoss(3.0)}

DECAY = 0.0025
"""Of what is learned, in each training step; chosen in the first round, for label smoothing."""


class GatedPenalty(LogitPenalty):
    """The penalty with another gate: an exponent (0: no gate), or a dead zone that over-fitting has to exceed."""

    def __init__(self, num_classes: int, start: float, *, gate: float, dead_zone: float, **options: float) -> None:
        super().__init__(num_classes, start, **options)
        self.gate, self.dead_zone = gate, dead_zone

    def pace(self, phase: Phase) -> Tensor | float:
        """Return the current factor of the strengths."""
        share = phase.overfitting
        if self.dead_zone:
            share = (torch.as_tensor(share) - self.dead_zone).clamp(min=0.0) / (1.0 - self.dead_zone)
        return share**self.gate * math.pow(phase.relative_lr, self.annealing)


@dataclass(frozen=True)
class Candidate:
    """A way to use `MetaCalibrator`.

    Attributes:
        start, annealing, gate, dead_zone, rate, share: of the penalty.
        is_mean: whether ``start`` is that of the mean over classes instead of the sum.
        through: what the simulated step moves.
        learns: False leaves the penalty at its start, as a control.
        fixed: ``"default"`` gives no arguments at all, ``"smoothing"`` learns hierarchical label smoothing, ``"paper"``
            is the paper's smoothing, objective and outer step.
    """

    start: float = 0.03
    annealing: float = 2.0
    gate: float = 1.0
    dead_zone: float = 0.0
    rate: float = 3.0
    share: float = 0.1
    is_mean: bool = False
    through: str = "model"
    learns: bool = True
    fixed: str = ""

    def arguments(self, num_classes: int) -> dict[str, Any]:
        """What `MetaCalibrator` is given."""
        if self.fixed == "default":
            return {}
        if self.fixed == "smoothing":
            return {"hyperparameters": HierarchicalLabelSmoothing(num_classes)}
        if self.fixed == "paper":
            plain = CrossEntropyLoss() + 0.5 * DECELoss()
            paper: dict[str, Any] = {"hyperparameters": NonUniformLabelSmoothing(num_classes), "objective": plain}
            return {**paper, "through": "head", "outer": PAPER}
        penalty = GatedPenalty(
            num_classes,
            self.start / (num_classes if self.is_mean else 1),
            annealing=self.annealing,
            gate=self.gate,
            dead_zone=self.dead_zone,
            rate=self.rate,
            share=self.share,
            decay=DECAY,
        )
        outer = OuterStep(every=16, dense_start=0, memory=512)
        if not self.learns:
            outer = replace(outer, adaptive=False, lr=1e-12)
        return {"hyperparameters": penalty, "through": self.through, "outer": outer}


CENTRE = Candidate()
SECOND = replace(CENTRE, start=0.1, share=0.0)
"""What the second round chose: the centre of the third and the fourth."""

CANDIDATES: dict[str, Candidate] = {
    "centre": CENTRE,
    "start .1": replace(CENTRE, start=0.1),
    "not gated": replace(CENTRE, gate=0.0),
    "annealing 1": replace(CENTRE, annealing=1.0),
    "one strength": replace(CENTRE, share=0.0),
    "head": replace(CENTRE, through="head"),
    "no learning": replace(CENTRE, learns=False),
    "second": SECOND,
    "second, gate squared": replace(SECOND, gate=2.0),
    "second, gate squared, mean": replace(SECOND, gate=2.0, start=1.0, is_mean=True),
    "second, dead zone .05": replace(SECOND, dead_zone=0.05),
    "second, dead zone .1": replace(SECOND, dead_zone=0.1),
    "smoothing": Candidate(fixed="smoothing"),
    "paper": Candidate(fixed="paper"),
    "default": Candidate(fixed="default"),
}
