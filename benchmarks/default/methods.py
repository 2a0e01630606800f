"""The methods that are compared: baselines, and candidates for the default that differ from a centre in one respect."""

import math
from dataclasses import dataclass, replace
from typing import Any

from metacal import PAPER, HierarchicalLabelSmoothing, LogitPenalty, NonUniformLabelSmoothing, OuterStep
from metacal.losses import CrossEntropyLoss, DECELoss, FocalLoss, LabelSmoothingLoss, Loss
from metacal.metalearning.hyperparameter import Phase

BASELINES: dict[str, Loss] = {"ce": CrossEntropyLoss(), "ls": LabelSmoothingLoss(0.05), "fl3": FocalLoss(3.0)}

DECAY = 0.0025
"""Of what is learned, in each training step; chosen in the first round, for label smoothing."""


class UngatedPenalty(LogitPenalty):
    """The same penalty whether the model over-fits or not."""

    def pace(self, phase: Phase) -> float:
        """What the strengths are multiplied by now."""
        return math.pow(phase.relative_lr, self.annealing)


@dataclass(frozen=True)
class Candidate:
    """A way to use `MetaCalibrator`.

    Attributes:
        start, annealing, rate, share: of the penalty.
        is_gated: whether the penalty follows over-fitting.
        through: what the simulated step moves.
        learns: False leaves the penalty at its start, as a control.
        fixed: ``"default"`` gives no arguments at all, ``"smoothing"`` learns hierarchical label smoothing, ``"paper"``
            is the paper's smoothing, objective and outer step.
    """

    start: float = 0.03
    annealing: float = 2.0
    rate: float = 3.0
    share: float = 0.1
    is_gated: bool = True
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
        penalty = (LogitPenalty if self.is_gated else UngatedPenalty)(
            num_classes, self.start, annealing=self.annealing, rate=self.rate, share=self.share, decay=DECAY
        )
        outer = OuterStep(every=16, dense_start=0, memory=512)
        if not self.learns:
            outer = replace(outer, adaptive=False, lr=1e-12)
        return {"hyperparameters": penalty, "through": self.through, "outer": outer}


CENTRE = Candidate()

CANDIDATES: dict[str, Candidate] = {
    "centre": CENTRE,
    "start .1": replace(CENTRE, start=0.1),
    "not gated": replace(CENTRE, is_gated=False),
    "annealing 1": replace(CENTRE, annealing=1.0),
    "one strength": replace(CENTRE, share=0.0),
    "head": replace(CENTRE, through="head"),
    "no learning": replace(CENTRE, learns=False),
    "smoothing": Candidate(fixed="smoothing"),
    "paper": Candidate(fixed="paper"),
    "default": Candidate(fixed="default"),
}
