"""Training on Lightning Fabric: the loop, its checkpoints and its schedule. It emits events and prints nothing."""

from metacal.training.checkpoints import Checkpoints
from metacal.training.loop import train
from metacal.training.objectives import MetaObjective, Objective, PlainObjective
from metacal.training.schedule import Schedule, build_optimizer
from metacal.training.setup import Phase, Training
from metacal.training.stop import Stopped, StopRequest

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
