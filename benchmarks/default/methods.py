"""The methods that are compared: baselines, and candidates for the default that differ from a centre in one respect."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from metacal import PAPER, HierarchicalLabelSmoothing, NonUniformLabelSmoothing, OuterStep
from metacal.functional import temperature_with_prior
from metacal.losses import AfterTemperature, CrossEntropyLoss, DECELoss, FocalLoss, LabelSmoothingLoss, Loss

BASELINES: dict[str, Loss] = {"ce": CrossEntropyLoss(), "ls": LabelSmoothingLoss(0.05), "fl3": FocalLoss(3.0)}

RESERVED = 0.3
"""Share of the held-out samples that only a temperature is fitted on, where some are reserved."""


class Bounded(AfterTemperature):
    """Judged after a temperature that is no lower than a bound: under-confidence beyond it is not forgiven."""

    def __init__(self, loss: Loss, at_least: float) -> None:
        super().__init__(loss)
        self.at_least = at_least

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch."""
        temperature = temperature_with_prior(logits=logits.detach(), targets=targets)
        value: Tensor = self.loss(logits / temperature.clamp(min=self.at_least), targets)
        return value


@dataclass(frozen=True)
class Candidate:
    """A way to use `MetaCalibrator`.

    Attributes:
        through: what the simulated step moves.
        start: of the smoothing.
        threshold: of the smoothing.
        share: of the smoothing.
        decay: of the smoothing.
        dece: weight of DECE beside cross-entropy in the objective.
        at_least: lowest temperature that held-out samples are judged after; None judges them as they are.
        every: iterations from one meta step to the next.
        memory: of the outer step.
        learns: False lets the smoothing decay and nothing else, as a control.
        reserves: whether part of the held-out samples is kept for the temperature.
        fixed: ``"default"`` gives no arguments at all, ``"paper"`` the paper's smoothing, objective and outer step.
    """

    through: str = "model"
    start: float = 0.05
    threshold: float = 0.04
    share: float = 0.1
    decay: float = 0.0025
    dece: float = 0.0
    at_least: float | None = 0.0
    every: int = 4
    memory: int = 0
    learns: bool = True
    reserves: bool = False
    fixed: str = ""

    def arguments(self, num_classes: int) -> dict[str, Any]:
        """What `MetaCalibrator` is given."""
        if self.fixed == "default":
            return {}
        if self.fixed == "paper":
            plain = CrossEntropyLoss() + 0.5 * DECELoss()
            paper: dict[str, Any] = {"hyperparameters": NonUniformLabelSmoothing(num_classes), "objective": plain}
            return {**paper, "through": "head", "outer": PAPER}
        smoothing = HierarchicalLabelSmoothing(
            num_classes, self.start, threshold=self.threshold, share=self.share, decay=self.decay
        )
        objective: Loss = CrossEntropyLoss() + self.dece * DECELoss() if self.dece else CrossEntropyLoss()
        if self.at_least is not None:
            objective = Bounded(objective, self.at_least)
        outer = OuterStep(every=self.every, dense_start=0, memory=self.memory)
        if not self.learns:
            outer = replace(outer, adaptive=False, lr=1e-12)
        return {"hyperparameters": smoothing, "objective": objective, "through": self.through, "outer": outer}

    def share_out(self, samples: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Held-out samples to learn from, and those that the temperature is fitted on."""
        if not self.reserves:
            return samples, samples
        count = round(RESERVED * len(samples[1]))
        kept, rest = (tuple(torch.tensor_split(part, [count])) for part in samples)
        return (kept[1], rest[1]), (kept[0], rest[0])


CENTRE = Candidate()

CANDIDATES: dict[str, Candidate] = {
    "centre": CENTRE,
    "head": replace(CENTRE, through="head"),
    "start 0": replace(CENTRE, start=0.0),
    "no threshold": replace(CENTRE, threshold=0.0),
    "threshold .02": replace(CENTRE, threshold=0.02),
    "no decay": replace(CENTRE, decay=0.0),
    "decay .005": replace(CENTRE, decay=0.005),
    "one strength": replace(CENTRE, share=0.0),
    "share 1": replace(CENTRE, share=1.0),
    "ce + dece": replace(CENTRE, dece=0.5),
    "as it is": replace(CENTRE, at_least=None),
    "ce + dece as it is": replace(CENTRE, dece=0.5, at_least=None),
    "T at least .8": replace(CENTRE, at_least=0.8),
    "T at least 1": replace(CENTRE, at_least=1.0),
    "every 8": replace(CENTRE, every=8),
    "every 16": replace(CENTRE, every=16),
    "every 32": replace(CENTRE, every=32),
    "memory": replace(CENTRE, memory=512),
    "no learning": replace(CENTRE, learns=False),
    "reserved": replace(CENTRE, reserves=True),
    "paper": Candidate(fixed="paper"),
    "default": Candidate(fixed="default"),
}
