"""Training runs, straight down: a spec, its pipeline, the loop, and the folder that holds what came out.

What a run is can be said without torch: names that need it are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from metacal.errors import needs

with needs("lab"):
    from metacal.lab.training.domains import Domains
    from metacal.lab.training.methods import METHODS, Method, Term
    from metacal.lab.training.recipes import are_of_hardware, build_spec, read_assignments, read_hardware
    from metacal.lab.training.spec import Hardware, RunSpec

if TYPE_CHECKING:
    from metacal.lab.training.checkpoints import Checkpoints
    from metacal.lab.training.loop import train
    from metacal.lab.training.machine import make_fabric
    from metacal.lab.training.pipeline import run
    from metacal.lab.training.run_data import build_model, evaluation_batches, load_data
    from metacal.lab.training.run_folder import RunFolder
    from metacal.lab.training.schedule import Schedule, build_optimizer
    from metacal.lab.training.setup import Phase, Training
    from metacal.lab.training.stop import Stopped, StopRequest
    from metacal.lab.training.training_loss import MetaObjective, Objective, PlainObjective

__all__ = [
    "METHODS",
    "Checkpoints",
    "Domains",
    "Hardware",
    "MetaObjective",
    "Method",
    "Objective",
    "Phase",
    "PlainObjective",
    "RunFolder",
    "RunSpec",
    "Schedule",
    "StopRequest",
    "Stopped",
    "Term",
    "Training",
    "are_of_hardware",
    "build_model",
    "build_optimizer",
    "build_spec",
    "evaluation_batches",
    "load_data",
    "make_fabric",
    "read_assignments",
    "read_hardware",
    "run",
    "train",
]

_ON_FIRST_USE = {
    "checkpoints": "Checkpoints",
    "loop": "train",
    "machine": "make_fabric",
    "pipeline": "run",
    "run_data": "build_model evaluation_batches load_data",
    "run_folder": "RunFolder",
    "schedule": "Schedule build_optimizer",
    "setup": "Phase Training",
    "stop": "StopRequest Stopped",
    "training_loss": "MetaObjective Objective PlainObjective",
}


def __getattr__(name: str) -> Any:
    """Import a name that needs torch."""
    for module, names in _ON_FIRST_USE.items():
        if name in names.split():
            with needs("lab"):
                return getattr(importlib.import_module(f"metacal.lab.training.{module}"), name)
    raise AttributeError(f"module 'metacal.lab.training' has no attribute {name!r}")
