"""Training runs, straight down: a spec, its pipeline, the loop, and the folder that holds what came out.

What a run is can be said without torch: names that need it are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from metacal.errors import needs

with needs("lab"):
    from metacal.lab.training.methods import METHODS, Method, Term
    from metacal.lab.training.recipes import are_of_hardware, build_spec, read_assignments, read_hardware
    from metacal.lab.training.spec import Domains, Hardware, RunSpec

if TYPE_CHECKING:
    from metacal.lab.training.build import build_model, evaluation_batches, load_data, make_fabric
    from metacal.lab.training.checkpoints import Checkpoints
    from metacal.lab.training.events import Stopped, StopRequest
    from metacal.lab.training.loop import Phase, Training, predict, train
    from metacal.lab.training.pipeline import run
    from metacal.lab.training.run_folder import RunFolder, RunStore
    from metacal.lab.training.training_loss import MetaCalibratedLoss, PlainLoss

__all__ = [
    "METHODS",
    "Checkpoints",
    "Domains",
    "Hardware",
    "MetaCalibratedLoss",
    "Method",
    "Phase",
    "PlainLoss",
    "RunFolder",
    "RunSpec",
    "RunStore",
    "StopRequest",
    "Stopped",
    "Term",
    "Training",
    "are_of_hardware",
    "build_model",
    "build_spec",
    "evaluation_batches",
    "load_data",
    "make_fabric",
    "predict",
    "read_assignments",
    "read_hardware",
    "run",
    "train",
]

_ON_FIRST_USE = {
    "build": ("build_model", "evaluation_batches", "load_data", "make_fabric"),
    "checkpoints": ("Checkpoints",),
    "events": ("StopRequest", "Stopped"),
    "loop": ("Phase", "Training", "predict", "train"),
    "pipeline": ("run",),
    "run_folder": ("RunFolder", "RunStore"),
    "training_loss": ("MetaCalibratedLoss", "PlainLoss"),
}


def __getattr__(name: str) -> Any:
    """Import a name that needs torch."""
    for module, names in _ON_FIRST_USE.items():
        if name in names:
            with needs("lab"):
                return getattr(importlib.import_module(f"metacal.lab.training.{module}"), name)
    raise AttributeError(f"module 'metacal.lab.training' has no attribute {name!r}")
