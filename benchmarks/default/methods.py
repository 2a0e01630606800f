"""The methods that are compared: baselines, and candidates for the default that differ from a centre in one respect."""

from dataclasses import dataclass, replace
from typing import Any

from metacal import PAPER, HierarchicalLabelSmoothing, LogitPenalty, NonUniformLabelSmoothing, OuterStep
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, FocalLoss, LabelSmoothingLoss, Loss
from metacal.metalearning.hyperparameter import InnerLoss
from metacal.metalearning.logit_penalty import centred_square

BASELINES: dict[str, Loss] = {"ce": CrossEntropyLoss(), "ls": LabelSmoothingLoss(0.05), "fl3": FocalLoss(3.0)}

DECAY = 0.0025
"""Of what is learned, in each training step; chosen in the first round, for label smoothing."""


class QuarticPenalty(LogitPenalty):
    """The same penalty on the square of the squared norm: it hardly touches small logits and bounds large ones."""

    def forward(self, inner: InnerLoss) -> InnerLoss:
        """Fill the penalty on logits."""
        strength = self.strength[inner.labels] * inner.relative_lr**self.annealing
        return inner.with_logit_penalty(lambda logits: strength * centred_square(logits).square())


@dataclass(frozen=True)
class Candidate:
    """A way to use `MetaCalibrator`.

    Attributes:
        start, annealing, rate, share: of the penalty.
        is_quartic: whether the penalty is on the fourth power of the norm.
        through: what the simulated step moves.
        refines: whether held-out samples are judged after a temperature.
        learns: False leaves the penalty at its start, as a control.
        fixed: ``"default"`` gives no arguments at all, ``"smoothing"`` learns hierarchical label smoothing, ``"paper"``
            is the paper's smoothing, objective and outer step.
    """

    start: float = 0.03
    annealing: float = 2.0
    rate: float = 3.0
    share: float = 0.1
    is_quartic: bool = False
    through: str = "model"
    refines: bool = True
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
        penalty = (QuarticPenalty if self.is_quartic else LogitPenalty)(
            num_classes, self.start, annealing=self.annealing, rate=self.rate, share=self.share, decay=DECAY
        )
        objective: Loss = AfterTemperature(CrossEntropyLoss()) if self.refines else CrossEntropyLoss()
        outer = OuterStep(every=16, dense_start=0, memory=512)
        if not self.learns:
            outer = replace(outer, adaptive=False, lr=1e-12)
        return {"hyperparameters": penalty, "objective": objective, "through": self.through, "outer": outer}


CENTRE = Candidate()

CANDIDATES: dict[str, Candidate] = {
    "centre": CENTRE,
    "start .01": replace(CENTRE, start=0.01),
    "start .1": replace(CENTRE, start=0.1),
    "fourth power": replace(CENTRE, start=0.001, is_quartic=True),
    "annealing 1": replace(CENTRE, annealing=1.0),
    "no annealing": replace(CENTRE, annealing=0.0),
    "rate 10": replace(CENTRE, rate=10.0),
    "one strength": replace(CENTRE, share=0.0),
    "head": replace(CENTRE, through="head"),
    "as it is": replace(CENTRE, refines=False),
    "no learning": replace(CENTRE, learns=False),
    "smoothing": Candidate(fixed="smoothing"),
    "paper": Candidate(fixed="paper"),
    "default": Candidate(fixed="default"),
}
