"""Training on Lightning Fabric: the loop, its checkpoints and its schedule. It emits events and prints nothing."""

from metacal.lab.training.checkpoints import Checkpoints
from metacal.lab.training.loop import train
from metacal.lab.training.objectives import MetaObjective, Objective, PlainObjective
from metacal.lab.training.schedule import Schedule, build_optimizer
from metacal.lab.training.setup import Phase, Training
from metacal.lab.training.stop import Stopped, StopRequest

__all__ = [
    "Checkpoints",
    "MetaObjective",
    "Objective",
    "Phase",
    "PlainObjective",
    "Schedule",
    "StopRequest",
    "Stopped",
    "Training",
    "build_optimizer",
    "train",
]
